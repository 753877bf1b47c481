// Package webtest drives a real browser, Chromium without a window, for tests of pages.
//
// The browser is spoken to over two pipes in its DevTools protocol: nothing listens, and
// nothing is loaded from anywhere but the page's own server. A browser is a process of the
// test and ends with it. Pages wait in the browser for what a test expects, never for
// a time. What a page complains of is collected: errors on the console, exceptions, and
// files that could not be loaded.
//
// Without Chromium a test is skipped, or fails when UNDERSTUDY_REQUIRE_BACKENDS=1.
package webtest
