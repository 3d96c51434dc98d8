write_mirrors() {
: none, unless here
{{#each containerd.registries}}
{{#if mirrors}}
mkdir -p /etc/containerd/certs.d/{{shell directory}} || return 1
cat >/etc/containerd/certs.d/{{shell directory}}/hosts.toml <<'EOF' || return 1
{{#if server}}
server = {{toml server}}
{{/if}}
{{#each mirrors}}

[host.{{toml url}}]
capabilities = ["pull", "resolve"]
{{#if skipVerify}}
skip_verify = true
{{/if}}
{{#if overridePath}}
override_path = true
{{/if}}
{{/each}}
EOF
{{/if}}
{{/each}}
}
