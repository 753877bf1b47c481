// Package prometheus collects metrics and serves them in Prometheus's text format (version 0.0.4).
//
// The client library, github.com/prometheus/client_golang, brings protobuf, its registry and three more modules for a
// format that nothing here asks for: 2 MiB of the program.
//
// Labels have few values: nothing here removes a series again.
package prometheus
