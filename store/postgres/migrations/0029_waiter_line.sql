-- readers: 11
-- A renewal shows how many wait before its session: it reads few of them, however many there are. On an expression, so that
-- nothing else comes along this index in place of the primary key while there are no statistics.
CREATE INDEX waiter_line ON {{schema}}.waiter ((space || '/' || key), place);
