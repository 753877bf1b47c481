package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
)

// Names of the version before, which are accepted for one version more: paths, and keys of JSON on them.
const (
	messagesPath, oldMessagesPath = "/v1/queues/{queue}/messages", "/v1/queues/{queue}/batches"
	checksPath, oldChecksPath     = "/v1/checks", "/v1/event-names"
	rejectedPath, oldRejectedPath = "/v1/monitor/rejected", "/v1/monitor/letters"
)

// errNoBatch is what [dispatch.ErrNoMessage] is under the old path.
var errNoBatch = errors.New("no such batch")

type noBatch struct{ error }

func (e noBatch) Unwrap() error   { return e.error }
func (noBatch) Is(err error) bool { return err == errNoBatch }

// withOldPaths adds the routes under their old paths. They answer with the old keys and codes.
func withOldPaths(routes []route) []route {
	out := routes
	for _, rt := range routes {
		oldKeys := map[string]string{"messages": "batches", "checks": "event_names", "check": "event"}
		switch {
		case strings.Contains(rt.pattern, messagesPath):
			rt.pattern = strings.Replace(rt.pattern, messagesPath, oldMessagesPath, 1)
			rt.handle = withOldCode(rt.handle)
		case strings.Contains(rt.pattern, checksPath):
			rt.pattern = strings.Replace(rt.pattern, checksPath, oldChecksPath, 1)
		case strings.HasSuffix(rt.pattern, rejectedPath):
			rt.pattern = strings.Replace(rt.pattern, rejectedPath, oldRejectedPath, 1)
			oldKeys = map[string]string{"rejected": "letters"}
		default:
			continue
		}
		rt.hidden = true
		if !strings.HasSuffix(rt.pattern, "/payload") { // which is not ours to change
			rt.handle = withOldKeys(rt.handle, oldKeys)
		}
		out = append(out, rt)
	}
	return out
}

func withOldCode(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		err := handle(w, r)
		if errors.Is(err, dispatch.ErrNoMessage) {
			err = noBatch{err}
		}
		return err
	}
}

func withOldKeys(handle handler, names map[string]string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		kept := &keptBody{ResponseWriter: w, status: http.StatusOK}
		if err := handle(kept, r); err != nil {
			return err
		}
		w.WriteHeader(kept.status)
		_, _ = w.Write(renameKeys(kept.body.Bytes(), names))
		return nil
	}
}

// keptBody keeps what is answered, so that it can be changed.
type keptBody struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (k *keptBody) WriteHeader(status int)      { k.status = status }
func (k *keptBody) Write(p []byte) (int, error) { return k.body.Write(p) }
func (k *keptBody) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// checkInput and declarationInput are elements of requests, in which a check may have the key of the version before.
type (
	checkInput struct {
		apitype.Check
		Old string `json:"event"`
	}
	declarationInput struct {
		apitype.Declaration
		Old string `json:"event"`
	}
)

func (in checkInput) check() (monitor.Check, error) {
	in.Name = cmp.Or(in.Name, in.Old)
	c := CheckOf(in.Check)
	return c, c.Validate()
}

func (in declarationInput) declaration() (monitor.Declaration, error) {
	in.Check = cmp.Or(in.Check, in.Old)
	d := monitor.Declaration(in.Declaration)
	return d, d.Validate()
}

// renameKeys renames the keys of an object, and of the objects in its lists. Deeper ones are the caller's own, such as labels.
// What is not an object is left as it is.
func renameKeys(text []byte, names map[string]string) []byte {
	var whole map[string]json.RawMessage
	if json.Unmarshal(text, &whole) != nil {
		return text
	}
	for key, value := range whole {
		var list []map[string]json.RawMessage
		if json.Unmarshal(value, &list) == nil && list != nil {
			for _, one := range list {
				renameAll(one, names)
			}
			whole[key], _ = json.Marshal(list) // of what was read as JSON
		}
	}
	renameAll(whole, names)
	oldNext(whole)
	out, _ := json.Marshal(whole)
	return out
}

func renameAll(of map[string]json.RawMessage, names map[string]string) {
	for from, to := range names {
		if value, ok := of[from]; ok && of[to] == nil {
			of[to] = value
			delete(of, from)
		}
	}
}

// oldNext gives next the form that it had in a list of batches.
func oldNext(whole map[string]json.RawMessage) {
	var next string
	if whole["batches"] == nil || json.Unmarshal(whole["next"], &next) != nil {
		return
	}
	parts, err := readCursor(next, 2)
	if err != nil {
		return
	}
	seq, _ := strconv.ParseInt(parts[1], 10, 64)
	whole["next"], _ = json.Marshal(map[string]any{"after_key": parts[0], "after_seq": seq})
}
