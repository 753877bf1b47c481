package podlabel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// accountDir has what Kubernetes gives each pod's service account. It renews the token from time to time.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	// deadline of one request, with its connection.
	deadline = 5 * time.Second
	// mostAnswer is more than the API server's storage takes for one object.
	mostAnswer = 4 << 20
)

var (
	errConflict = errors.New("the pod was changed meanwhile")
	errAnswer   = errors.New("the API server's answer is not a pod")
)

// refusal is an answer that is not the pod.
type refusal struct {
	status     int
	message    string
	retryAfter time.Duration
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("the API server answers %d %s", r.status, http.StatusText(r.status))
	if r.message != "" {
		text += ": " + r.message
	}
	if r.status == http.StatusForbidden {
		text += " (its service account needs the verb patch on pods)"
	}
	return text
}

// kind tells failures apart whose texts differ each time.
func kind(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return strconv.Itoa(r.status)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op
	}
	return fmt.Sprintf("%T", err)
}

var podName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// ValidateName returns an error unless a pod can have the name.
func ValidateName(name string) error {
	if !podName.MatchString(name) {
		return usererr.Errorf("--pod %q is not the name of a pod", name)
	}
	return nil
}

// New is the pod of this name in which the process runs, to be set and run.
func New(name string, log *slog.Logger) (*Pod, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, usererr.Errorf("--pod %s: this is not a pod: $KUBERNETES_SERVICE_HOST is not set (leave --pod out)", name)
	}
	return newPod(name, net.JoinHostPort(host, port), accountDir, log)
}

func newPod(name, address, dir string, log *slog.Logger) (*Pod, error) {
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err == nil {
		_, _, err = account(dir)
	}
	if err != nil {
		return nil, usererr.Errorf("--pod %s: the pod has no service account (automountServiceAccountToken: true): %v", name, err)
	}
	at := url.URL{Scheme: "https", Host: address, RawQuery: "fieldManager=understudy"}
	where := at.JoinPath("api/v1/namespaces", strings.TrimSpace(string(namespace)), "pods", name).String()
	return &Pod{log: log, wake: make(chan struct{}, 1), deadline: deadline, send: func(ctx context.Context, body []byte) ([]byte, error) { return send(ctx, where, dir, body) }}, nil
}

// account reads what proves who this is, and who the API server is.
func account(dir string) (token string, authorities *x509.CertPool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		return "", nil, err
	}
	certificates, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return "", nil, err
	}
	authorities = x509.NewCertPool()
	if token = strings.TrimSpace(string(text)); token == "" || !authorities.AppendCertsFromPEM(certificates) {
		return "", nil, fmt.Errorf("%s has no token, or no certificate", dir)
	}
	return token, authorities, nil
}

// send sends one PATCH, on a connection of its own: a demotion must not wait on one that died, and the token and the authority are those
// of now. Requests are rare.
func send(ctx context.Context, where, dir string, body []byte) ([]byte, error) {
	token, authorities, err := account(dir)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, where, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/merge-patch+json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "understudy")
	// RoundTrip follows no redirect, and there is no proxy: the token goes to this server alone.
	res, err := (&http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer+1))
	switch {
	case res.StatusCode == http.StatusConflict:
		return nil, errConflict
	case res.StatusCode != http.StatusOK:
		return nil, refused(res, answer)
	case err != nil:
		return nil, fmt.Errorf("the API server's answer: %w", err)
	case len(answer) > mostAnswer:
		return nil, errAnswer
	}
	return answer, nil
}

// refused reads a Status of the API, as far as it is one.
func refused(res *http.Response, body []byte) *refusal {
	var status struct{ Message string }
	_ = json.Unmarshal(body, &status)
	r := &refusal{status: res.StatusCode, message: fmt.Sprintf("%.300s", strings.Join(strings.Fields(status.Message), " "))}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.retryAfter = min(time.Duration(seconds)*time.Second, mostPause)
	}
	return r
}
