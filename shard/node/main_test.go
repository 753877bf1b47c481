package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// As agentDir says, this test's binary is an agent that starts a node and then does nothing.
const agentDir = "UNDERSTUDY_TEST_AGENT_DIR"

// As nodeMode says, it is a node.
const nodeMode = "UNDERSTUDY_TEST_NODE"

// As adoptee says ("PID ADDRESS"), it adopts a process that somebody else started, and kills it.
const adoptee = "UNDERSTUDY_TEST_ADOPT"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(nodeMode) != "":
		beNode(os.Getenv(nodeMode))
	case os.Getenv(agentDir) != "":
		p, err := New(nodeConfig(os.Getenv(agentDir), "wait"))
		if err == nil {
			err = p.Start(context.Background())
		}
		fmt.Println(p.PID(), err)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case os.Getenv(adoptee) != "":
		fmt.Print(adoptAndKill(os.Getenv(adoptee)))
	default:
		goleak.VerifyTestMain(m)
	}
}

func nodeConfig(dir, mode string) Config {
	self, _ := os.Executable()
	return Config{Argv: []string{self}, Env: []string{nodeMode + "=" + mode, agentDir + "="}, Dir: dir}
}

func beNode(mode string) {
	fmt.Println("the node is here", os.Getpid())
	switch mode {
	case "fail":
		os.Exit(3)
	case "term":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	default:
		select {}
	}
}

// adoptAndKill returns what became of it: "killed", or the error.
func adoptAndKill(arg string) string {
	var (
		pid     int
		address string
	)
	if _, err := fmt.Sscan(arg, &pid, &address); err != nil {
		return err.Error()
	}
	p, err := Adopt(pid, address)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return err.Error()
	}
	<-p.Done()
	return "killed"
}
