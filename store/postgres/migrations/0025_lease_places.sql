-- readers: 11
-- How many equal leases the holder of a lease contended for, this one among them; 0: it did not say.
ALTER TABLE {{schema}}.lease ADD COLUMN places integer NOT NULL DEFAULT 0;
