package untrusted

import "net/http"

// CloseUnaskedUpgrade closes the body of an answer "101 Switching Protocols" to a request that did not ask for one. The
// transport gives the bare connection as that body: its reads would end neither with the request's context nor at any deadline.
func CloseUnaskedUpgrade(answer *http.Response) {
	if answer.StatusCode == http.StatusSwitchingProtocols {
		_ = answer.Body.Close()
		answer.Body = http.NoBody
	}
}
