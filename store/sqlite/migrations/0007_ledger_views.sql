-- readers: 5
-- The tables of Hyperledger Grid's batch submission, of which a queue is the successor. In a file of a user's that has
-- such tables, those stay.
CREATE VIEW IF NOT EXISTS batches (service_id, batch_id, data_change_id, signer_public_key, trace, serialized_batch, submitted, created_at) AS
SELECT b.key, b.id, NULL, NULL, 0, p.payload,
       b.state NOT IN ('queued', 'delayed', 'unknown') OR c.step <> 0 AND b.seq = c.done + 1, b.enqueued_us / 1000000
FROM understudy_batch b JOIN understudy_payload p ON p.n = b.body
JOIN understudy_claim c ON c.space = 'queue/' || b.queue AND c.key = b.key;

CREATE VIEW IF NOT EXISTS batch_statuses (service_id, batch_id, dlt_status, created_at, updated_at) AS
SELECT key, id, CASE state WHEN 'failed' THEN 'Invalid' ELSE upper(substr(state, 1, 1)) || substr(state, 2) END,
       enqueued_us / 1000000, coalesce(ended_us, begun_us, enqueued_us) / 1000000
FROM understudy_batch WHERE state NOT IN ('queued', 'cancelled');

CREATE VIEW IF NOT EXISTS service_id_claims (service_id, claimant, expiry) AS
SELECT c.key, s.instance, strftime('%Y-%m-%d %H:%M:%f', (s.renewed_us + s.timeout_us) / 1e6, 'unixepoch')
FROM understudy_claim c LEFT JOIN understudy_session s ON s.id = c.session AND s.ended = 0
WHERE c.space LIKE 'queue/%';
