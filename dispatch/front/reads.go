package front

import (
	"net/http"
	"net/http/httputil"
	"time"
)

// Bounds of what is passed through. A REST API whose validator is away is silent for five minutes.
const (
	readTimeout = time.Minute
	readsAtOnce = 64
)

// passReads passes every read that the front does not answer itself to the ledger's own REST API, so that its clients
// need one address: blocks, state, batches. The API makes its links from the host that the client named.
func (f *front) passReads() http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.TLSClientConfig = f.ReadsTLS
	transport.ResponseHeaderTimeout, transport.MaxConnsPerHost = readTimeout, readsAtOnce
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.Reads)
			r.Out.Host = r.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Path"} {
				if values := r.In.Header[name]; values != nil { // what the client's own proxy said holds here too
					r.Out.Header[name] = values
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil { // the client has left
				return
			}
			f.Logger.Warn("the ledger does not answer a read", "path", r.URL.Path, "err", err)
			f.dialect.fail(w, fault{faultStore, "the ledger behind this address cannot be reached; try again later"})
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuseMethod(w, "GET,HEAD")
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

func refuseMethod(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
}
