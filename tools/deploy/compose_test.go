package deploy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const composeFile = "../../deploy/docker/compose.yaml"

// composed reads the file as compose does: in a folder where the commands in its head were carried out.
func composed(t *testing.T, profiles ...string) (*types.Project, map[string]string) {
	t.Helper()
	text, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"compose.yaml": string(text)})
	commands := regexp.MustCompile(`(?m)^#   ((?:openssl|echo) .*)$`).FindAllSubmatch(text, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands before the start, want 2", len(commands))
	}
	for _, c := range commands {
		if out, err := tool(t, "sh", "-ec", "cd "+dir+" && "+string(c[1])); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithEnvFiles(), cli.WithDotEnv, cli.WithProfiles(profiles))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, secret := range project.Secrets {
		files["secret "+name] = secret.File
	}
	for name, config := range project.Configs {
		files["config "+name] = filepath.Join(folder(t, map[string]string{name: config.Content}), name)
	}
	return project, files
}

// contained is a service's container. Volumes are made once for each name.
func contained(t *testing.T, s types.ServiceConfig, files, volumes map[string]string, n *fault.Network, at int, names string) container {
	t.Helper()
	c := container{argv: s.Command, user: s.User, wrap: n.Wrap(at), mounts: map[string]string{"/etc/hosts": names}, debian: s.Image != "understudy:0.1.0"}
	if !c.debian {
		c.argv = append([]string{"/understudy"}, c.argv...)
	}
	if c.user == "" {
		c.user = "65532:65532" // the image's
	}
	for name, value := range s.Environment {
		c.env = append(c.env, name+"="+*value)
	}
	for _, config := range s.Configs {
		c.mounts[config.Target] = files["config "+config.Source]
	}
	for _, secret := range s.Secrets {
		c.mounts["/run/secrets/"+secret.Source] = files["secret "+secret.Source]
	}
	for _, v := range s.Volumes {
		if volumes[v.Source] == "" {
			volumes[v.Source] = owned(t, 999)
		}
		c.mounts[v.Target] = volumes[v.Source]
	}
	return c
}

// TestComposeServers starts what `docker compose up` would, beside a PostgreSQL with the password of .env, and asks it as the head of the
// file does.
func TestComposeServers(t *testing.T) {
	project, files := composed(t)
	if got := strings.Join(project.ServiceNames(), " "); got != "postgres server-1 server-2" {
		t.Fatalf("without a profile it starts %s", got)
	}
	n := fault.InNetwork(t, 2)
	if n == nil {
		return
	}
	database(t, *project.Services["postgres"].Environment["POSTGRES_PASSWORD"])
	names := filepath.Join(folder(t, map[string]string{"hosts": hosts(map[string]string{"postgres": here})}), "hosts")
	secret, err := os.ReadFile(files["secret token"])
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"server-1", "server-2"} {
		s := project.Services[name]
		p := contained(t, s, files, map[string]string{}, n, i+1, names).start(t)
		at := "http://" + n.Address(i+1) + ":" + fmt.Sprint(s.Ports[0].Target)
		wantStatus(t, at+"/readyz", http.StatusOK)
		wantStatus(t, at+"/v1/roles", http.StatusOK, "Authorization: Bearer "+string(bytes.TrimSpace(secret)))
		if i == 1 {
			stop(t, p, time.Duration(*s.StopGracePeriod))
		}
	}
}

// TestComposeShard starts the profile's shard: a primary takes writes, and another one does after it was killed.
func TestComposeShard(t *testing.T) {
	project, files := composed(t, "shard")
	n := fault.InNetwork(t, 3)
	if n == nil {
		return
	}
	realserver.Find(t, "redis-server")
	database(t, *project.Services["postgres"].Environment["POSTGRES_PASSWORD"])
	addresses, volumes := map[string]string{"postgres": here}, map[string]string{}
	for i := range 3 {
		addresses[fmt.Sprintf("redis-%d", i+1)] = n.Address(i + 1)
	}
	names := filepath.Join(folder(t, map[string]string{"hosts": hosts(addresses)}), "hosts")
	nodes := map[int]*realserver.Process{}
	for i := 1; i <= 3; i++ {
		redis, agent := project.Services[fmt.Sprintf("redis-%d", i)], project.Services[fmt.Sprintf("agent-%d", i)]
		if agent.NetworkMode != "service:"+redis.Name || agent.Pid != "service:"+redis.Name || agent.User != redis.User {
			t.Errorf("%s is not beside its node: %s, %s, user %q and %q", agent.Name, agent.NetworkMode, agent.Pid, agent.User, redis.User)
		}
		nodes[i] = contained(t, redis, files, volumes, n, i, names).start(t)
		contained(t, agent, files, volumes, n, i, names).start(t)
	}
	var w written
	primary := func(not int) (found int) {
		realserver.Eventually(t, time.Minute, "a primary", func() error {
			for i := 1; i <= 3; i++ {
				if status, _, err := get("http://" + n.Address(i) + ":8008/primary"); err == nil && status == http.StatusOK && i != not {
					found = i
					return nil
				}
			}
			return fmt.Errorf("none but %d", not)
		})
		return found
	}
	first := primary(0)
	for i := 1; i <= 3; i++ {
		wantStatus(t, "http://"+n.Address(i)+":8008/read-only", http.StatusOK)
	}
	w.write(t, n.Address(first)+":6379")
	nodes[first].Kill()
	second := primary(first)
	w.write(t, n.Address(second)+":6379")
}
