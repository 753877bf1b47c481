// Package kubeapi stands in for the API server of Kubernetes, as far as a pod that patches itself meets it: one pod, one verb, one kind of
// PATCH (RFC 7386). It is stricter than the real one where both may be: what it does not know is refused.
package kubeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"sync"
)

// Server is an API server with one pod. Its handler is for TLS.
type Server struct {
	// Namespace and Name of the pod.
	Namespace, Name string
	// Lax accepts a PATCH for a version of the pod that has passed, as no API server does: for tests of tests.
	Lax bool
	// Fault is asked before a request is carried out, and may answer it itself. Optional.
	Fault func(w http.ResponseWriter, r *http.Request) (answered bool)

	mu      sync.Mutex
	token   string
	pod     map[string]any
	version int
	history []map[string]any
	patches int
}

// New is a server with a pod as a StatefulSet's controller and a kubelet leave it.
func New(namespace, name, token string) *Server {
	s := &Server{Namespace: namespace, Name: name, token: token, version: 4711}
	s.pod = map[string]any{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{
			"name": name, "namespace": namespace, "uid": "0b5a6f0e-8f2c-4a52-9d3e-1f6f6a4b7c8d",
			"labels":        map[string]any{"app.kubernetes.io/name": "understudy-shard", "statefulset.kubernetes.io/pod-name": name},
			"managedFields": []any{map[string]any{"manager": "kubelet", "operation": "Update", "fieldsV1": map[string]any{"f:status": map[string]any{}}}},
		},
		"spec":   map[string]any{"containers": []any{map[string]any{"name": "agent", "image": "understudy"}}},
		"status": map[string]any{"phase": "Running", "beats": 0.0},
	}
	s.stamp()
	return s
}

func (s *Server) stamp() {
	s.version++
	s.pod["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	s.history = append(s.history, copied(s.pod))
}

// SetToken ends the token from before.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Touch is a kubelet that reports a status.
func (s *Server) Touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.pod["status"].(map[string]any)
	status["beats"] = status["beats"].(float64) + 1
	s.stamp()
}

// History is each state of the pod's labels and annotations in the order in which they were stored, the present one last.
func (s *Server) History() (labels, annotations []map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.history {
		m := pod["metadata"].(map[string]any)
		l, _ := m["labels"].(map[string]any)
		a, _ := m["annotations"].(map[string]any)
		labels, annotations = append(labels, l), append(annotations, a)
	}
	return labels, annotations
}

// Patches is how many requests came as far as the pod, with or without a change.
func (s *Server) Patches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.patches
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Fault != nil && s.Fault(w, r) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 3<<20))
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	s.mu.Lock()
	token := s.token
	s.mu.Unlock()
	user := fmt.Sprintf(`User "system:serviceaccount:%s:%s"`, s.Namespace, s.Name)
	switch {
	case r.Header.Get("Authorization") != "Bearer "+token:
		answer(w, http.StatusUnauthorized, status(http.StatusUnauthorized, "Unauthorized", "Unauthorized"))
	case r.URL.Path != "/api/v1/namespaces/"+s.Namespace+"/pods/"+s.Name || r.Method != http.MethodPatch:
		answer(w, http.StatusForbidden, status(http.StatusForbidden, "Forbidden", fmt.Sprintf(`pods is forbidden: %s cannot %s resource %q`, user, r.Method, r.URL.Path)))
	case r.Header.Get("Accept") != "application/json":
		answer(w, http.StatusNotAcceptable, status(http.StatusNotAcceptable, "NotAcceptable", "only application/json is played here"))
	case kind != "application/merge-patch+json":
		answer(w, http.StatusUnsupportedMediaType, status(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body of the request was in an unknown format"))
	case err != nil:
		answer(w, http.StatusRequestEntityTooLarge, status(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", err.Error()))
	default:
		code, text := s.Patch(body)
		answer(w, code, text)
	}
}

func answer(w http.ResponseWriter, code int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

func status(code int, reason, message string) []byte {
	text, _ := json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "reason": reason, "message": message, "code": code})
	return text
}

var labelValue = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$`)

// Patch merges a patch into the pod, and answers with the pod.
func (s *Server) Patch(body []byte) (code int, answer []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patches++
	var patch map[string]any
	if err := json.Unmarshal(body, &patch); err != nil {
		return http.StatusBadRequest, status(http.StatusBadRequest, "BadRequest", err.Error())
	}
	changes, _ := patch["metadata"].(map[string]any)
	now := strconv.Itoa(s.version)
	if wanted, has := changes["resourceVersion"]; has && wanted != now && !s.Lax {
		return http.StatusConflict, status(http.StatusConflict, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on pods %q: the object has been modified; please apply your changes to the latest version and try again", s.Name))
	}
	delete(changes, "resourceVersion")
	next, err := merged(copied(s.pod), patch)
	if err != nil {
		return http.StatusUnprocessableEntity, status(http.StatusUnprocessableEntity, "Invalid", fmt.Sprintf("Pod %q is invalid: %v", s.Name, err))
	}
	if !reflect.DeepEqual(next, s.pod) { // a PATCH that changes nothing leaves the version as it is
		s.pod = next
		s.stamp()
	}
	text, _ := json.Marshal(s.pod)
	return http.StatusOK, text
}

// merged refuses what is not metadata, which a pod that labels itself has no business with.
func merged(pod, patch map[string]any) (map[string]any, error) {
	for name, changes := range patch {
		m, ok := changes.(map[string]any)
		if name != "metadata" || !ok {
			return nil, fmt.Errorf("%s: Forbidden", name)
		}
		for field, value := range m {
			if field != "labels" && field != "annotations" {
				return nil, fmt.Errorf("metadata.%s: field is immutable", field)
			}
			values, ok := value.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("metadata.%s: not a map", field)
			}
			if err := mergeInto(pod["metadata"].(map[string]any), field, values); err != nil {
				return nil, err
			}
		}
	}
	return pod, nil
}

func mergeInto(metadata map[string]any, field string, values map[string]any) error {
	have, _ := metadata[field].(map[string]any)
	have = maps.Clone(have)
	if have == nil {
		have = map[string]any{}
	}
	for k, v := range values {
		text, isText := v.(string)
		switch {
		case v == nil:
			delete(have, k)
		case !isText:
			return fmt.Errorf("metadata.%s[%s]: not a string", field, k)
		case field == "labels" && !labelValue.MatchString(text):
			return fmt.Errorf("metadata.labels: Invalid value: %q", text)
		default:
			have[k] = text
		}
	}
	metadata[field] = have
	if len(have) == 0 {
		delete(metadata, field)
	}
	return nil
}

func copied(pod map[string]any) map[string]any {
	text, _ := json.Marshal(pod)
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return out
}
