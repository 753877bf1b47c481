-- Views, which belong to the version that was installed last. A later version may add columns at the
-- end, and no more: CREATE OR REPLACE VIEW refuses anything else.

-- One row for each role: who is primary and when its session was last renewed.
-- A vacant role has an empty uuid and uname, and the time at which its last
-- primary was last seen.
CREATE OR REPLACE VIEW {{schema}}.heartbeats AS
SELECT CASE WHEN live THEN holder_id ELSE '' END AS uuid,
       key AS utype,
       CASE WHEN live THEN holder_name ELSE '' END AS uname,
       seen AS "timestamp"
  FROM (
    SELECT l.key, l.holder_id, l.holder_name,
           coalesce(s.deadline > {{schema}}.clock() AND NOT s.ended, false) AS live,
           coalesce(s.deadline - s.timeout_ns / 1000 * interval '1 microsecond', l.since) AS seen
      FROM {{schema}}.lease l LEFT JOIN {{schema}}.session s ON s.id = l.session
     WHERE l.space = 'role'
  ) role;

-- The tables of the ONAP heartbeat service.
CREATE OR REPLACE VIEW {{schema}}.vnf_table_1 AS
SELECT e.name::varchar AS event_name, (e.config->>'missed')::integer AS heartbeat_missed_count,
       ceil(e.every / 1000000.0)::integer AS heartbeat_interval,
       coalesce(e.config->'control_loop'->>'name', '')::varchar AS closed_control_loop_name,
       coalesce(e.config->'control_loop'->>'policy_version', '')::varchar AS policy_version,
       coalesce(e.config->'control_loop'->>'policy_name', '')::varchar AS policy_name,
       coalesce(e.config->'control_loop'->>'policy_scope', '')::varchar AS policy_scope,
       coalesce(e.config->'control_loop'->>'target_type', '')::varchar AS target_type,
       coalesce(e.config->'control_loop'->>'target', '')::varchar AS target,
       coalesce(e.config->'control_loop'->>'version', '')::varchar AS version,
       (SELECT coalesce(sum(c.n), 0) FROM {{schema}}.monitor_count c WHERE c.event = e.id AND c.state <> 'alarm')::integer AS source_name_count,
       CASE WHEN e.removed THEN 0 ELSE 1 END AS validity_flag
  FROM {{schema}}.monitor_event e;

CREATE OR REPLACE VIEW {{schema}}.vnf_table_2 AS
SELECT e.name::varchar AS event_name, s.number AS source_name_key,
       (CASE WHEN b.sent <> 0 THEN b.sent ELSE b.at END / 1000)::bigint AS last_epo_time,
       s.name::varchar AS source_name, CASE WHEN s.alarm <> '' THEN 1 ELSE 0 END AS cl_flag
  FROM {{schema}}.monitor_source s
  JOIN {{schema}}.monitor_event e ON e.id = s.event
  JOIN {{schema}}.monitor_beat b ON b.id = s.id;

CREATE OR REPLACE VIEW {{schema}}.hb_common AS
SELECT m.process AS process_id, (m.host || '-' || m.service)::varchar AS source_name,
       least(floor(extract(epoch FROM m.seen)), 2147483647)::integer AS last_accessed_time,
       (SELECT CASE WHEN s.configured IS NULL THEN 'RECONFIGURATION' ELSE 'RUNNING' END FROM {{schema}}.monitor_setting s)::varchar AS current_state
  FROM {{schema}}.monitor_member m WHERE m.active ORDER BY m.seen DESC LIMIT 1;

-- The tables of Hyperledger Grid's batch submission, of which a queue is the successor: a service is a key.
CREATE OR REPLACE VIEW {{schema}}.batches AS
SELECT b.key::varchar AS service_id, b.id::varchar AS batch_id, NULL::varchar AS data_change_id, NULL::varchar AS signer_public_key,
       false AS trace, b.payload AS serialized_batch, b.state NOT IN ('queued', 'delayed', 'unknown') AS submitted,
       floor(extract(epoch FROM b.enqueued))::bigint AS created_at
  FROM {{schema}}.batch b WHERE b.seq IS NOT NULL;

CREATE OR REPLACE VIEW {{schema}}.batch_statuses AS
SELECT b.key::varchar AS service_id, b.id::varchar AS batch_id,
       (CASE b.state WHEN 'failed' THEN 'Invalid' ELSE initcap(b.state) END)::varchar AS dlt_status,
       floor(extract(epoch FROM b.enqueued))::bigint AS created_at,
       floor(extract(epoch FROM coalesce(b.ended, b.begun, b.enqueued)))::bigint AS updated_at
  FROM {{schema}}.batch b WHERE b.seq IS NOT NULL AND b.state NOT IN ('queued', 'submitting', 'cancelled');

CREATE OR REPLACE VIEW {{schema}}.service_id_claims AS
SELECT c.key::varchar AS service_id, s.instance_id::varchar AS claimant, s.deadline AS expiry
  FROM {{schema}}.claim c
  LEFT JOIN {{schema}}.session s ON s.id = c.session AND NOT s.ended AND s.deadline > {{schema}}.clock()
 WHERE starts_with(c.space, 'queue/');
