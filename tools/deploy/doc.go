// Package deploy holds the tests of deploy/helm and deploy/docker, in a module of its own. Charts are rendered by helm, and each object goes
// through the code with which an API server reads, completes and judges what it is to create; the compose file is read by compose's own
// loader. Then their containers are started as processes, with the files, arguments and environment that they say, each pod in a network of
// its own. make prove runs them; they need root.
package deploy
