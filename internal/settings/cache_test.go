package settings

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache"
)

// TestOriginWithCA: an origin with certificates of its own is bounded as every other.
func TestOriginWithCA(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("X-Large", strings.Repeat("x", 128<<10))
		}
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	fetch, err := (&Cache{Origin: &Origin{URL: server.URL + "/{key}", CAFile: writeFile(t, string(ca))}}).origin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t.Context(), cache.Fetch{Key: "small"}); err != nil {
		t.Error(err)
	}
	if _, err := fetch(t.Context(), cache.Fetch{Key: "large"}); err == nil || !strings.Contains(err.Error(), "headers exceeded") {
		t.Errorf("a header of 128 KiB: %v", err)
	}
}
