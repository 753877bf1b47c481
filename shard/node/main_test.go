package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// As agentDir says, this test's binary is an agent that starts a node and then does nothing.
const agentDir = "UNDERSTUDY_TEST_AGENT_DIR"

// As preparing says, it is an agent that does not come to write down what it has started.
const preparing = "UNDERSTUDY_TEST_PREPARE"

// As nodeMode says, it is a node.
const nodeMode = "UNDERSTUDY_TEST_NODE"

// As adoptee says ("PID ADDRESS"), it adopts a process that somebody else started, and kills it.
const adoptee = "UNDERSTUDY_TEST_ADOPT"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == LaunchArg:
		fmt.Fprintln(os.Stderr, Launch(os.Args[2:]))
		os.Exit(1)
	case os.Getenv(nodeMode) != "":
		beNode(os.Getenv(nodeMode))
	case os.Getenv(agentDir) != "":
		p, err := New(nodeConfig(os.Getenv(agentDir), "wait"))
		if err == nil {
			err = p.Start(context.Background())
		}
		fmt.Println(p.PID(), err)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case os.Getenv(preparing) != "":
		prepareOnly(os.Getenv(preparing))
	case os.Getenv(adoptee) != "":
		fmt.Print(adoptAndKill(os.Getenv(adoptee)))
	default:
		goleak.VerifyTestMain(m)
	}
}

// prepareOnly does what an agent does up to the moment in which it writes node.pid, and then nothing.
func prepareOnly(dir string) {
	p, err := New(nodeConfig(dir, "wait"))
	if err != nil {
		panic(err)
	}
	out, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	cmd, gate, err := p.prepare(out)
	if err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = gate.Close()
}

func nodeConfig(dir, mode string) Config {
	self, _ := os.Executable()
	return Config{Argv: []string{self}, Env: []string{nodeMode + "=" + mode, agentDir + "=", preparing + "="}, Dir: dir}
}

func beNode(mode string) {
	fmt.Println("the node is here", os.Getpid())
	mode, address, _ := strings.Cut(mode, " ")
	switch mode {
	case "listen":
		_, err := net.Listen("tcp", address)
		fmt.Println("ready", err)
		select {}
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
