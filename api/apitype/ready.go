package apitype

// Ready is the answer of a server that runs (/healthz) or is ready (/readyz).
type Ready struct {
	Status string `json:"status" enum:"up,ready"`
}
