// Package jobtest is what every store of jobs must pass: [TestStore], the conformance suite of job.Store. Each rule of the
// port is a topic of its own, tried on a real store. [Judge] is for who tries whole instances: it knows every scheduled time and every start.
//
// It promises nothing about speed, and does not try what only a failing store does.
package jobtest
