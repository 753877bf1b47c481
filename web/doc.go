// Package web is the page: plain files without a build step, embedded in the
// binary. It shows what the API's event stream tells, and asks for changes
// through the API; it holds no secrets.
//
// What the store says reaches the page as text only, never as HTML; the policy
// that goes with the files lets the browser run and load nothing else.
package web
