// Package web is the dashboard: plain files without a build step, embedded in the
// binary. It shows what the API's event stream tells and what a few of its other
// operations answer, a page for each part and one of everything, and asks for
// changes through the API; it holds no secrets.
//
// What the store says reaches the page as text only, never as HTML; the policy
// that goes with the files lets the browser run and load nothing else. While the
// server does not answer, the page says so, shows what it had as old, and comes
// back by itself.
package web
