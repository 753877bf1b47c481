package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
)

const namespace = "shop"

// strategies judge what is to be created, in an API server.
var strategies = map[schema.GroupVersionKind]rest.RESTCreateStrategy{
	appsv1.SchemeGroupVersion.WithKind("Deployment"):            deployment.Strategy,
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"):           statefulset.Strategy,
	corev1.SchemeGroupVersion.WithKind("ConfigMap"):             configmap.Strategy,
	corev1.SchemeGroupVersion.WithKind("Service"):               service.Strategy,
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"):        serviceaccount.Strategy,
	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): poddisruptionbudget.Strategy,
	rbacv1.SchemeGroupVersion.WithKind("Role"):                  role.Strategy,
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):           rolebinding.Strategy,
}

// create returns what an API server would say to an object: its own, completed, version of it, or why it creates none. An unknown field is an
// error, as is a warning.
func create(text string) (runtime.Object, error) {
	reader := json.NewSerializerWithOptions(json.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	o, kind, err := reader.Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, err
	}
	strategy, known := strategies[*kind]
	if !known {
		return nil, fmt.Errorf("%v: no object of this kind is expected", kind)
	}
	legacyscheme.Scheme.Default(o)
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(o.DeepCopyObject(), schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, err
	}
	ctx := request.WithRequestInfo(request.WithNamespace(context.Background(), namespace),
		&request.RequestInfo{IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version, Namespace: namespace})
	if s, is := internal.(*core.Service); is && s.Spec.ClusterIP != "" { // as the allocator does before
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	rest.FillObjectMetaSystemFields(internal.(metav1.Object))
	if err := rest.BeforeCreate(strategy, ctx, internal); err != nil {
		return nil, err
	}
	if warnings := strategy.WarningsOnCreate(ctx, internal); len(warnings) > 0 {
		return nil, fmt.Errorf("%v: %s", kind, strings.Join(warnings, "; "))
	}
	return o, nil
}

// The judge refuses what an API server refuses.
func TestJudge(t *testing.T) {
	const good = "apiVersion: v1\nkind: Service\nmetadata: {name: orders}\nspec:\n  selector: {a: b}\n  ports: [{name: node, port: 6379, targetPort: node}]\n"
	if _, err := create(good); err != nil {
		t.Errorf("%v\n%s", err, good)
	}
	for _, change := range []struct{ from, to, why string }{
		{"selector:", "selektor:", "unknown field"},
		{"port: 6379", "port: 6379000", "between 1 and 65535"},
		{"name: orders", "name: Orders", "RFC 1123 label"},
		{"a: b", "a: b/c", "a valid label must be"},
		{"kind: Service", "kind: Servise", "no kind"},
	} {
		if _, err := create(strings.Replace(good, change.from, change.to, 1)); err == nil || !strings.Contains(err.Error(), change.why) {
			t.Errorf("%s: %v, want %q", change.to, err, change.why)
		}
	}
}

func find[T runtime.Object](objects []runtime.Object, name string) (found T, ok bool) {
	for _, o := range objects {
		if f, is := o.(T); is && any(f).(metav1.Object).GetName() == name {
			return f, true
		}
	}
	return found, false
}
