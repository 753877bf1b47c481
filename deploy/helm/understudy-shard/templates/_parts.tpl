{{/* The node's file. The last lines keep it closed until its agent decides, which checks them. */}}
{{- define "understudy-shard.file" -}}
{{ .Values.nodeConfig | trim }}
port 6379
bind * -::*
protected-mode no
dir /data
{{- if .Values.auth.enabled }}
aclfile /etc/node-secret/users.acl
{{- end }}
replicaof 127.0.0.1 0
min-replicas-to-write 2147483647
rdb-del-sync-files yes
{{- end }}

{{- define "understudy-shard.closed" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Agent and node see the same files at the same paths: the agent reads the node's configuration, and how far its AOF reaches. */}}
{{- define "understudy-shard.mounts" -}}
- {name: data, mountPath: /data}
- {name: config, mountPath: /etc/node, readOnly: true}
{{- if .Values.auth.enabled }}
- {name: secret, mountPath: /etc/node-secret, readOnly: true}
{{- end }}
{{- end }}
