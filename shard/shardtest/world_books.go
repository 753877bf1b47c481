package shardtest

// Data returns the ids of the writes that the node has, oldest first.
func (n *Node) Data() []int64 {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	ids := make([]int64, len(n.data))
	for i, w := range n.data {
		ids[i] = w.id
	}
	return ids
}

// Hung tells that the node's process is stopped.
func (n *Node) Hung() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.hung
}

// Accepts tells whether the node would accept a write now.
func (n *Node) Accepts() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.replicate()
	return n.running && !n.hung && n.refuses() == nil
}
