package deploy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	serverChart = "../../deploy/helm/understudy"
	shardChart  = "../../deploy/helm/understudy-shard"
)

// tool runs a program, with a deadline.
func tool(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, errs.String())
	}
	return string(out), err
}

// render has helm render a chart, and the API's own code judge every object of it.
func render(t *testing.T, chart string, values ...string) []runtime.Object {
	t.Helper()
	args := []string{"template", "orders", chart, "--namespace", namespace}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	text, err := tool(t, append([]string{"go", "tool", "helm"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var out []runtime.Object
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		if strings.TrimSpace(document) == "" {
			continue
		}
		o, err := create(document)
		if err != nil {
			t.Errorf("%v\n%s", err, document)
			continue
		}
		out = append(out, o)
	}
	return out
}

func TestChartsAreValid(t *testing.T) {
	release, err := os.ReadFile("../../cmd/understudy/version.go")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`const release = "(.*)"`).FindSubmatch(release)[1]
	for _, c := range []struct {
		chart    string
		values   [][]string
		objects  int
		refusals map[string]string
	}{
		{serverChart, [][]string{{"secret=s"}, {"secret=s", "replicas=1", "service.port=80", "imagePullSecrets[0].name=r", "config.roles[0].role=billing"}}, 4,
			map[string]string{"replicas=2": "secret: ", "secret=s,replica=3": "replica", "secret=s,config.store=x": "config"}},
		{shardChart, [][]string{
			{"secret=s"},
			{"secret=s", "replicas=1", "antiAffinity=preferred", "shard=carts", "storage.className=fast", "imagePullSecrets[0].name=r"},
			{"secret=s", "auth.enabled=true", "nodeProgram=redis-server", "agentArgs[0]=--max-lag=1", "minReplicas=1"},
		}, 8, map[string]string{"replicas=2": "secret: ", "secret=s,antiAffinity=maybe": "antiAffinity", "secret=s,user=0": "user"}},
	} {
		t.Run(filepath.Base(c.chart), func(t *testing.T) {
			for _, field := range []string{"version", "appVersion"} {
				text, err := os.ReadFile(filepath.Join(c.chart, "Chart.yaml"))
				if err != nil || !bytes.Contains(text, fmt.Appendf(nil, "\n%s: %s\n", field, version)) {
					t.Errorf("%s is not %s: %v", field, version, err)
				}
			}
			for _, values := range c.values {
				if objects := render(t, c.chart, values...); len(objects) != c.objects {
					t.Errorf("%v: %d objects, want %d", values, len(objects), c.objects)
				} else {
					fits(t, objects)
				}
				if out, err := tool(t, "go", "tool", "helm", "lint", "--strict", "--set", strings.Join(values, ","), c.chart); err != nil {
					t.Errorf("%v: %v\n%s", values, err, out)
				}
				notes, err := tool(t, "go", "tool", "helm", "install", "orders", c.chart, "--dry-run=client", "--namespace", namespace, "--set", strings.Join(values, ","))
				if err != nil || !strings.Contains(notes, "\nNOTES:\n") || !strings.Contains(notes, "kubectl -n "+namespace) {
					t.Errorf("%v: %v\n%s", values, err, notes)
				}
			}
			for values, why := range c.refusals {
				if out, err := tool(t, "go", "tool", "helm", "template", "orders", c.chart, "--set", values); err == nil || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: %v, want %q\n%s", values, err, why, out)
				}
			}
		})
	}
}

// fits wants objects that name each other to do so rightly: selectors and labels, ports, volumes, accounts, budgets.
func fits(t *testing.T, objects []runtime.Object) {
	t.Helper()
	var template corev1.PodTemplateSpec
	var selector map[string]string
	replicas := int32(0)
	claims := map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			template, selector, replicas = o.Spec.Template, o.Spec.Selector.MatchLabels, *o.Spec.Replicas
		case *appsv1.StatefulSet:
			template, selector, replicas = o.Spec.Template, o.Spec.Selector.MatchLabels, *o.Spec.Replicas
			for _, claim := range o.Spec.VolumeClaimTemplates {
				claims[claim.Name] = true
			}
			if _, ok := find[*corev1.Service](objects, o.Spec.ServiceName); !ok {
				t.Errorf("no service %s", o.Spec.ServiceName)
			}
		}
	}
	for _, v := range template.Spec.Volumes {
		claims[v.Name] = true
		if v.ConfigMap != nil {
			if _, ok := find[*corev1.ConfigMap](objects, v.ConfigMap.Name); !ok {
				t.Errorf("no config map %s", v.ConfigMap.Name)
			}
		}
	}
	ports := map[string]bool{}
	for _, c := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, m := range c.VolumeMounts {
			if !claims[m.Name] {
				t.Errorf("%s: no volume %s", c.Name, m.Name)
			}
		}
		hasMemory(t, c, objects)
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s is not closed: %+v", c.Name, s)
		}
	}
	if p := template.Spec.SecurityContext; p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod is not closed: %+v", p)
	}
	if template.Spec.AutomountServiceAccountToken == nil || *template.Spec.AutomountServiceAccountToken {
		t.Error("every container gets a token")
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			want := maps.Clone(o.Spec.Selector)
			delete(want, "understudy/role") // an agent's
			if !labels.SelectorFromSet(want).Matches(labels.Set(template.Labels)) {
				t.Errorf("service %s selects no pod: %v, %v", o.Name, o.Spec.Selector, template.Labels)
			}
			for _, p := range o.Spec.Ports {
				if !ports[p.TargetPort.StrVal] {
					t.Errorf("service %s: no port %s", o.Name, p.TargetPort.StrVal)
				}
			}
		case *policyv1.PodDisruptionBudget:
			if !maps.Equal(o.Spec.Selector.MatchLabels, selector) || o.Spec.MaxUnavailable.IntVal != 1 {
				t.Errorf("the budget: %+v", o.Spec)
			}
		case *rbacv1.Role:
			if len(o.Rules) != 1 || !slices.Equal(o.Rules[0].Verbs, []string{"patch"}) || !slices.Equal(o.Rules[0].Resources, []string{"pods"}) || len(o.Rules[0].ResourceNames) != int(replicas) {
				t.Errorf("the rights: %+v", o.Rules)
			}
		case *rbacv1.RoleBinding:
			_, account := find[*corev1.ServiceAccount](objects, o.Subjects[0].Name)
			_, role := find[*rbacv1.Role](objects, o.RoleRef.Name)
			if !account || !role || o.Subjects[0].Name != template.Spec.ServiceAccountName || o.Subjects[0].Namespace != namespace {
				t.Errorf("the binding: %+v", o)
			}
		}
	}
}

// hasMemory wants a limit of memory above what the container's program allows itself.
func hasMemory(t *testing.T, c corev1.Container, objects []runtime.Object) {
	t.Helper()
	const mib = 1 << 20
	limit := c.Resources.Limits.Memory().Value()
	switch c.Name {
	case "server": // bodies take 256 MiB (docs/security.md), and as much again before they are collected
		if limit < (2*256+64)*mib {
			t.Errorf("%s: %d MiB do not suffice", c.Name, limit/mib)
		}
	case "node": // a fork has what is written meanwhile twice
		config, _ := find[*corev1.ConfigMap](objects, "orders")
		m := regexp.MustCompile(`(?m)^maxmemory (\d+)mb$`).FindStringSubmatch(config.Data["node.conf"])
		if m == nil {
			t.Fatalf("%s: its data has no limit:\n%s", c.Name, config.Data["node.conf"])
		}
		if data, err := strconv.ParseInt(m[1], 10, 64); err != nil || data*mib > limit*2/3 {
			t.Errorf("%s: %d MiB of data in %d MiB: %v", c.Name, data, limit/mib, err)
		}
	}
}
