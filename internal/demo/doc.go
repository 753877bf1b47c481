// Package demo is the demonstration of `understudy demo`: three instances on this machine, as processes of their own,
// and acts that show what happens when one of them is killed.
//
// It promises that what it starts ends with it, however it ends, and that it leaves nothing behind; that it touches no
// store which is used for something else; and that with Auto an error says so when something promised was not kept.
// An act offers what can be done now, each with an outcome; the page, a terminal and Auto do the same.
// A terminal and the page act on the same processes: what ends is seen, whoever ended it. The routes for the page,
// /v1/demo, are in this process alone, on loopback, and refuse pages of other sites as all acts of the API do.
//
// It shows what the program does from outside: it asks its servers over HTTP, and knows no part of them. What it
// measures holds for this machine alone.
package demo
