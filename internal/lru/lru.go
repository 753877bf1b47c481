// Package lru remembers a bounded number of values.
package lru

import (
	"container/list"
	"sync"
)

// Cache remembers at most so many values, and forgets the one that was asked for
// longest ago. It is safe to use from many goroutines.
type Cache[K comparable, V any] struct {
	most int

	mu    sync.Mutex
	order *list.List // of *entry[K, V], the latest in front
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// New returns a cache of at most so many values.
func New[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, order: list.New(), byKey: map[K]*list.Element{}}
}

// Get returns the value of the key; ok is false if there is none.
func (l *Cache[K, V]) Get(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// GetOrAdd returns the value of the key, made by fresh if there is none.
func (l *Cache[K, V]) GetOrAdd(key K, fresh func() V) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.MoveToFront(e)
		return e.Value.(*entry[K, V]).value
	}
	value := fresh()
	l.byKey[key] = l.order.PushFront(&entry[K, V]{key, value})
	if l.order.Len() > l.most {
		oldest := l.order.Back()
		l.order.Remove(oldest)
		delete(l.byKey, oldest.Value.(*entry[K, V]).key)
	}
	return value
}

// Len is how many values are remembered.
func (l *Cache[K, V]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len()
}

// Drop forgets the value of the key.
func (l *Cache[K, V]) Drop(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.Remove(e)
		delete(l.byKey, key)
	}
}
