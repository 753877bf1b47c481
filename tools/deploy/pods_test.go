package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/kubeapi"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const (
	password = "s3cret-of-postgres"
	token    = "0123456789abcdef0123456789abcdef"
	account  = "/var/run/secrets/kubernetes.io/serviceaccount"
)

var store = "postgres://understudy:" + password + "@postgres/understudy"

// pod is one of a template, as a kubelet starts it.
type pod struct {
	name     string
	template corev1.PodTemplateSpec
	objects  []runtime.Object
	volumes  map[string]string // by name, made where they are not here
	hosts    string            // the file
	env      []string          // what a kubelet adds
	wrap     []string
	debian   string // the container that runs a program of this host
}

// container is one of the pod's, with the files, arguments and environment that its specification says.
func (p *pod) container(t *testing.T, c corev1.Container) container {
	t.Helper()
	env := map[string]string{}
	var list []string
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = e.Value
		case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.name":
			env[e.Name] = p.name
		case e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Key == "store":
			env[e.Name] = store
		case e.ValueFrom.ResourceFieldRef != nil && e.ValueFrom.ResourceFieldRef.Resource == "limits.memory":
			env[e.Name] = strconv.FormatInt(c.Resources.Limits.Memory().Value(), 10)
		default:
			t.Fatalf("%s: %+v is not played here", c.Name, e)
		}
		list = append(list, e.Name+"="+env[e.Name])
	}
	argv := c.Command
	if len(argv) == 0 {
		argv = []string{"/understudy"}
	}
	argv = slices.Concat(argv, c.Args)
	for i, arg := range argv {
		for name, value := range env {
			argv[i] = strings.ReplaceAll(argv[i], "$("+name+")", value)
		}
		if strings.Contains(argv[i], "$(") {
			t.Errorf("%s: %s names what is not there", c.Name, arg)
		}
	}
	out := container{argv: argv, env: append(list, p.env...), wrap: p.wrap, debian: c.Name == p.debian, mounts: map[string]string{"/etc/hosts": p.hosts}}
	s := p.template.Spec.SecurityContext
	out.user = fmt.Sprintf("%d:%d", *s.RunAsUser, *s.RunAsGroup)
	for _, m := range c.VolumeMounts {
		out.mounts[m.MountPath] = p.volume(t, m.Name)
	}
	return out
}

func (p *pod) volume(t *testing.T, name string) string {
	t.Helper()
	if dir, made := p.volumes[name]; made {
		return dir
	}
	i := slices.IndexFunc(p.template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 { // of a claim
		p.volumes[name] = owned(t, int(*p.template.Spec.SecurityContext.FSGroup))
		return p.volumes[name]
	}
	switch v := p.template.Spec.Volumes[i]; {
	case v.ConfigMap != nil:
		c, _ := find[*corev1.ConfigMap](p.objects, v.ConfigMap.Name)
		p.volumes[name] = folder(t, c.Data)
	case v.Secret != nil && len(v.Secret.Items) == 1 && v.Secret.Items[0].Key == "token":
		p.volumes[name] = folder(t, map[string]string{v.Secret.Items[0].Path: token})
	case v.EmptyDir != nil:
		p.volumes[name] = owned(t, int(*p.template.Spec.SecurityContext.FSGroup))
	default:
		t.Fatalf("volume %s is not played here", name)
	}
	return p.volumes[name]
}

// TestServerPods starts the servers of the chart on a PostgreSQL: they are ready, want the token, see each other, and stop in time.
func TestServerPods(t *testing.T) {
	n := fault.InNetwork(t, 2)
	if n == nil {
		return
	}
	objects := render(t, serverChart, "secret=s", "config.roles[0].role=billing")
	d, ok := find[*appsv1.Deployment](objects, "orders")
	if !ok {
		t.Fatal("no deployment")
	}
	database(t, password)
	file := filepath.Join(folder(t, map[string]string{"hosts": hosts(map[string]string{"postgres": here})}), "hosts")
	spec := d.Spec.Template.Spec.Containers[0]
	var servers []*realserver.Process
	for i := 1; i <= 2; i++ {
		p := &pod{name: fmt.Sprintf("orders-%d", i), template: d.Spec.Template, objects: objects, volumes: map[string]string{}, hosts: file, wrap: n.Wrap(i)}
		servers = append(servers, p.container(t, spec).start(t))
		at := "http://" + n.Address(i) + ":7600"
		wantStatus(t, at+spec.LivenessProbe.HTTPGet.Path, http.StatusOK)
		wantStatus(t, at+spec.ReadinessProbe.HTTPGet.Path, http.StatusOK)
		wantStatus(t, at+"/v1/roles", http.StatusUnauthorized)
		wantStatus(t, at+"/v1/roles", http.StatusOK, "Authorization: Bearer "+token)
	}
	holder := func() int {
		var held []int
		for i := 1; i <= 2; i++ {
			if status, _, err := get(fmt.Sprintf("http://%s:7600/v1/roles/billing/self", n.Address(i))); err == nil && status == http.StatusOK {
				held = append(held, i)
			}
		}
		if len(held) == 1 {
			return held[0]
		}
		return 0
	}
	realserver.Eventually(t, time.Minute, "one primary", func() error {
		if holder() == 0 {
			return errors.New("none, or two")
		}
		return nil
	})
	was := holder()
	stop(t, servers[was-1], time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second)
	realserver.Eventually(t, time.Minute, "the other server is primary", func() error {
		if holder() != 3-was {
			return errors.New("not yet")
		}
		return nil
	})
}

// shardPods are the pods of a shard, and what its API server shows of them.
type shardPods struct {
	n       *fault.Network
	pods    []*pod
	apis    []*kubeapi.Server
	spec    corev1.PodSpec
	node    []*realserver.Process
	agent   []*realserver.Process
	primary int
}

func (s *shardPods) address(i int) string { return s.n.Address(i+1) + ":6379" }

func (s *shardPods) start(t *testing.T, i int) {
	t.Helper()
	s.node[i] = s.pods[i].container(t, s.spec.InitContainers[0]).start(t)
	s.agent[i] = s.pods[i].container(t, s.spec.Containers[0]).start(t)
}

func (s *shardPods) shows(i int) (label, epoch string) {
	labels, annotations := s.apis[i].History()
	label, _ = labels[len(labels)-1]["understudy/role"].(string)
	epoch, _ = annotations[len(annotations)-1]["understudy/epoch"].(string)
	return label, epoch
}

// lead waits until one pod alone has the label, which is not the one from before, and its node takes writes.
func (s *shardPods) lead(t *testing.T, w *written) {
	t.Helper()
	was := s.primary
	realserver.Eventually(t, 2*time.Minute, "one other pod with the label", func() error {
		var labelled []int
		for i := range s.apis {
			if label, _ := s.shows(i); label == "primary" {
				labelled = append(labelled, i)
			}
		}
		if len(labelled) != 1 || labelled[0] == was {
			return fmt.Errorf("labelled are %v, before %d", labelled, was)
		}
		s.primary = labelled[0]
		return nil
	})
	_, now := s.shows(s.primary)
	if was >= 0 {
		_, before := s.shows(was)
		if a, _ := strconv.ParseInt(before, 10, 64); fmt.Sprint(a) != before || now <= before && len(now) <= len(before) {
			t.Errorf("epoch %q after %q", now, before)
		}
	}
	w.wantAll(t, s.address(s.primary))
	w.write(t, s.address(s.primary))
}

// ready waits until every pod is, and every node is a member whose link to the primary is up: until then a stop hands nothing over.
func (s *shardPods) ready(t *testing.T) {
	t.Helper()
	agent := s.spec.Containers[0]
	for i := range s.pods {
		at := "http://" + s.n.Address(i+1) + ":8008"
		wantStatus(t, at+agent.LivenessProbe.HTTPGet.Path, http.StatusOK)
		wantStatus(t, at+agent.ReadinessProbe.HTTPGet.Path, http.StatusOK)
	}
	realserver.Eventually(t, time.Minute, "members that follow", func() error {
		_, text, err := get("http://" + s.n.Address(s.primary+1) + ":8008/status")
		if err != nil {
			return err
		}
		var now struct {
			View struct {
				Row struct {
					Members []any `json:"members"`
				} `json:"row"`
				Nodes []struct {
					Link *struct {
						Up bool `json:"up"`
					} `json:"link"`
				} `json:"nodes"`
			} `json:"view"`
		}
		if err := json.Unmarshal([]byte(text), &now); err != nil {
			return err
		}
		follow := 0
		for _, n := range now.View.Nodes {
			if n.Link != nil && n.Link.Up {
				follow++
			}
		}
		if len(now.View.Row.Members) != len(s.pods) || follow != len(s.pods)-1 {
			return fmt.Errorf("%d members, %d follow", len(now.View.Row.Members), follow)
		}
		return nil
	})
}

// TestShardPods starts the pods of a shard on a PostgreSQL and before stand-ins of the API server. The label goes where writes go: at first, after the
// node of the primary was killed, while a pod is stopped as a kubelet stops it, and no acknowledged write is lost in that.
func TestShardPods(t *testing.T) {
	n := fault.InNetwork(t, 3)
	if n == nil {
		return
	}
	node := realserver.Find(t, "redis-server")
	objects := render(t, shardChart, "secret=s", "nodeProgram="+filepath.Base(node))
	set, ok := find[*appsv1.StatefulSet](objects, "orders")
	if !ok {
		t.Fatal("no stateful set")
	}
	database(t, password)
	s := &shardPods{n: n, spec: set.Spec.Template.Spec, node: make([]*realserver.Process, 3), agent: make([]*realserver.Process, 3), primary: -1}
	mux := http.NewServeMux()
	names := map[string]string{"postgres": here}
	for i := range 3 {
		name := fmt.Sprintf("orders-%d", i)
		names[name+".orders-nodes."+namespace+".svc"] = n.Address(i + 1)
		s.apis = append(s.apis, kubeapi.New(namespace, name, "token of "+name))
		mux.Handle("/api/v1/namespaces/"+namespace+"/pods/"+name, s.apis[i])
	}
	port, authority := overTLS(t, mux)
	file := filepath.Join(folder(t, map[string]string{"hosts": hosts(names)}), "hosts")
	for i := range 3 {
		name := fmt.Sprintf("orders-%d", i)
		p := &pod{name: name, template: set.Spec.Template, objects: objects, hosts: file, wrap: n.Wrap(i + 1), debian: "node",
			env: []string{"KUBERNETES_SERVICE_HOST=" + here, "KUBERNETES_SERVICE_PORT=" + port}}
		p.volumes = map[string]string{"account": folder(t, map[string]string{"token": "token of " + name, "ca.crt": authority, "namespace": namespace})}
		s.pods = append(s.pods, p)
		s.start(t, i)
	}
	var w written
	s.lead(t, &w)
	s.ready(t)

	t.Log("the primary's node is killed, and started again by its kubelet")
	old := s.primary
	s.node[old].Kill()
	s.node[old] = s.pods[old].container(t, s.spec.InitContainers[0]).start(t)
	s.lead(t, &w)
	s.ready(t)

	t.Log("the primary's pod is replaced: the agent stops first, then its node")
	old = s.primary
	w.write(t, s.address(old))
	stop(t, s.agent[old], time.Duration(*s.spec.TerminationGracePeriodSeconds)*time.Second)
	if label, _ := s.shows(old); label != "" {
		t.Errorf("the pod of an agent that has stopped shows %q", label)
	}
	s.lead(t, &w)
	stop(t, s.node[old], time.Minute)
	s.start(t, old)
	s.ready(t)

	t.Log("the primary's agent is killed: label and node stay as they are")
	old = s.primary
	before, _ := s.apis[old].History()
	s.agent[old].Kill()
	w.write(t, s.address(old))
	s.agent[old] = s.pods[old].container(t, s.spec.Containers[0]).start(t)
	wantStatus(t, "http://"+n.Address(old+1)+":8008/primary", http.StatusOK)
	labels, _ := s.apis[old].History()
	for _, l := range labels[len(before)-1:] {
		if l["understudy/role"] != "primary" {
			t.Error("the label went away while the node was open")
		}
	}
	w.wantAll(t, s.address(old))
	if os.Getenv("UNDERSTUDY_TEST_LOG") != "" {
		for i, a := range s.agent {
			t.Logf("agent %d:\n%s\nnode:\n%s", i, a.Output(), s.node[i].Output())
		}
	}
}
