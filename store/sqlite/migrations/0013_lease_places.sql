-- readers: 5
-- How many equal leases the holder of a lease contended for, this one among them; 0: it did not say.
ALTER TABLE understudy_lease ADD COLUMN places INTEGER NOT NULL DEFAULT 0;
