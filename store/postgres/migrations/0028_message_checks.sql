-- readers: 11
-- The functions and the trigger number_batches check messages. As constraints, the checks also cost each change of a message.
ALTER TABLE {{schema}}.batch DROP CONSTRAINT batch_key_check, DROP CONSTRAINT batch_id_check,
    DROP CONSTRAINT batch_content_type_check, DROP CONSTRAINT batch_payload_check;
