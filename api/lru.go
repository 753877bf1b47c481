package api

import (
	"container/list"
	"sync"
)

// lru remembers at most so many values, and forgets the one that was asked for
// longest ago.
type lru[K comparable, V any] struct {
	most int

	mu    sync.Mutex
	order *list.List // of *entry[K, V], the latest in front
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{most: most, order: list.New(), byKey: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(key K) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byKey[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*entry[K, V]).value, true
}

// getOrAdd returns the value of the key, made by fresh if there is none.
func (l *lru[K, V]) getOrAdd(key K, fresh func() V) V {
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

func (l *lru[K, V]) drop(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.byKey[key]; ok {
		l.order.Remove(e)
		delete(l.byKey, key)
	}
}
