//go:build !linux

package prometheus

// collectProcess adds nothing on systems without /proc.
func collectProcess(Scrape) {}
