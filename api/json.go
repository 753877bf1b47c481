package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// readJSON reads exactly one value, without fields that are not known. An empty
// body leaves v as it is.
func readJSON(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("something follows the first value")
		}
	}
	return fmt.Errorf("%w: the body is not the JSON that belongs here: %w", lease.ErrInvalid, err)
}

// writeJSON answers with one value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error is a caller who has gone
	return nil
}

// number reads a parameter of the query that is a whole number.
func number(r *http.Request, name string, least, most, missing int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %s=%.50q: use a number from %d to %d", lease.ErrInvalid, name, text, least, most)
	}
	return n, nil
}

// duration reads a parameter of the query that is a duration, such as 10s.
func duration(r *http.Request, name string, most time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, fmt.Errorf("%w: %s=%.50q: use a duration from 0s to %v, such as 10s", lease.ErrInvalid, name, text, most)
	}
	return d, nil
}

// filter reads a parameter of the query that selects by a name.
func filter(r *http.Request, name string) (string, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return "", nil
	}
	return text, lease.ValidateText(name, text, 1, lease.MaxKey)
}

// flag reads a parameter of the query that is true or false.
func flag(r *http.Request, name string) (bool, error) {
	switch text := r.URL.Query().Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fmt.Errorf("%w: %s=%.50q: use true or false", lease.ErrInvalid, name, text)
	}
}
