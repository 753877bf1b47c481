// Package podlabel labels the Kubernetes pod that an agent runs in, so that a Service can select the primary: the label
// understudy/role=primary while the agent's node takes writes, and the annotation understudy/epoch with the epoch under which it did so
// last.
//
// # What it promises
//
// A change of role is one PATCH of the pod's metadata, refused by the API server if the pod was changed since this process saw it last
// (metadata.resourceVersion). So a PATCH that arrives late never undoes a newer one, an epoch in the annotation never falls, and a pod
// that shows a newer epoch than this agent's is not labelled. What differs from the role for any other reason is put right within
// [recheck]. It needs one right: patch on the pod. What a pod has is learned from the answer to an empty PATCH.
//
// # What it does not promise
//
// The label directs connections; it does not protect data. While the API server cannot be reached a deposed pod keeps its label, and two
// pods can have it: the deposed one's node is closed and refuses writes, because the fence never waits for a label. While this process is
// down, its pod's label stays as it was, like its node.
//
// # How it fails
//
// Each request has a connection and a deadline of its own; after a failure the next one waits, longer each time up to [mostPause] and partly at
// random, unless the role changes. The agent never waits for it. One line is logged when it starts to fail in a new way, and one when it works again.
package podlabel
