-- readers: 11
-- A renewal looks for the leases of its session that were asked for, however many it holds.
CREATE INDEX lease_asked ON {{schema}}.lease (session) WHERE asked;
