{{#if (ne cloud.name "edge")}}
# What a power cut at the first boot has left may be empty files, and cloud-init writes none twice. It starts over until osm-bootstrap has begun.
test -e /var/lib/osm/begun || rm -f /var/lib/cloud/instance/sem/*
{{/if}}
