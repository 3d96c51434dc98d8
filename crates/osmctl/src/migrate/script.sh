#!/bin/sh
# Migrates a cluster from the upstream Operating System Manager to OSM, and back.
# `osmctl migrate script` has printed it for one cluster. If the objects that it names change, print it again.
# docs/migration.md explains each part. Read this script before you run it.
#
#   sh SCRIPT stop           deletes the webhook configurations, and stops the upstream OSM
#   sh SCRIPT install        installs the chart, and waits until OSM has published every pool
#   sh SCRIPT clean-up       deletes what is left of the upstream OSM
#   sh SCRIPT delete-token   deletes its non-expiring token and its user data, when all machines have joined
#   sh SCRIPT back           stops OSM, and restores the upstream OSM
#
# A part ends at the first check that fails, and can be run again.
# Copies of the deleted objects are in the folder $FOLDER. One of them contains the private key of the webhook, none a token.
# The names are those that KubeOne, the manifests of the upstream OSM, and the example of machine-controller use.
# If another program uses one of these objects as well, remove its line.
set -eu
umask 077

FOLDER=${FOLDER:-osm-migration}
# The chart: the folder charts/operating-system-manager of a checkout, a packaged file, or an OCI address. The part install needs it.
CHART=${CHART:-}
# The registry of the images. Empty: the one that the chart names.
REGISTRY=${REGISTRY:-}
# Seconds until all API servers have noticed that a webhook configuration has changed.
SETTLE=${SETTLE:-5}
# Seconds that a check may take.
TIMEOUT=${TIMEOUT:-600}

@KUBECONFIG@server=@SERVER@
namespace=@NAMESPACE@
default_profile=@DEFAULT_PROFILE@
kubectl() { command kubectl @CONTEXT@"$@"; }
helm() { command helm @HELM_CONTEXT@"$@"; }

fail() {
  echo "$*" >&2
  exit 1
}

# Runs a command every second until it succeeds.
wait_until() {
  what=$1 left=$TIMEOUT
  shift
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "Timed out while waiting for $what. Correct the cause, and run this part again."
    sleep 1
  done
}

exists() { kubectl get "$@" --ignore-not-found --output name | grep -q .; }

# The file with the copy of an object.
copy_of() { echo "$FOLDER/$(echo "$*" | tr -c 'A-Za-z0-9.\n-' _).yaml"; }

# Removes from an object what the API server or a controller has added, so that it can be created again.
# An owner that is created again has another UID, and the garbage collector would delete what refers to the old one.
restorable() {
  own='{"metadata":{"uid":null,"resourceVersion":null,"creationTimestamp":null,"generation":null,"ownerReferences":null},"status":null}'
  kubectl patch --local --filename - --type merge --patch "$own" --output yaml
}

# Saves a copy of an object after a further patch. The first copy stays: it is the one before the migration.
save_with() {
  patch=$1
  shift
  file=$(copy_of "$@")
  [ -e "$file" ] && return
  mkdir -p "$FOLDER"
  kubectl get "$@" --output yaml | restorable |
    kubectl patch --local --filename - --type merge --patch "$patch" --output yaml >"$file.part"
  [ -s "$file.part" ] || fail "Cannot save $*."
  mv "$file.part" "$file"
}

save() {
  case $1 in
    # Another Service may have its address by then.
    services/*) save_with '{"spec":{"clusterIP":null,"clusterIPs":null}}' "$@" ;;
    *) save_with '{}' "$@" ;;
  esac
}

# Saves a token without its value. kube-controller-manager fills it again, for the account that has the name by then.
save_token() { save_with '{"data":null,"metadata":{"annotations":{"kubernetes.io/service-account.uid":null}}}' "$@"; }

delete() {
  if exists "$@"; then
    save "$@"
    kubectl delete "$@" --ignore-not-found
  fi
}

delete_token() {
  if exists "$@"; then
    save_token "$@"
    kubectl delete "$@" --ignore-not-found
  fi
}

restore() {
  file=$(copy_of "$@")
  if [ -e "$file" ] && ! exists "$@"; then
    kubectl create --filename "$file"
  fi
}

# kube-controller-manager deletes the Secret of a token while it has not noticed the account yet.
has_token() {
  restore "$@"
  kubectl get "$@" --ignore-not-found --output 'jsonpath={.data.token}' | grep -q .
}

restore_token() {
  if [ -e "$(copy_of "$@")" ]; then
    wait_until "kube-controller-manager to write a token into $*" has_token "$@"
  fi
}

may() { kubectl auth can-i "$@" >/dev/null 2>&1 || fail "You lack a permission: $*. Nothing was changed."; }

is_this_cluster() {
  found=$(kubectl config view --minify --output 'jsonpath={.clusters[0].cluster.server}')
  [ -z "$found" ] || [ "${found%/}" = "$server" ] || fail "This script is for $server, and the kubeconfig selects $found."
}

# Webhook configurations that call the webhook of the upstream OSM.
webhooks() {
  kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations --output \
    'jsonpath={range .items[*]}{.kind}/{.metadata.name}{range .webhooks[*]} {.clientConfig.service.namespace}/{.clientConfig.service.name}{end}{"\n"}{end}' |
    grep -E ' @SERVICE@( |$)' || true
}

no_webhook_is_left() {
  found=$(webhooks)
  [ -z "$found" ] || fail "An installer has created a webhook configuration again: $found. Stop the installer, delete the configuration, and run this part again."
}

# Asks the API server whether it would create a copy of an existing object. Nothing is created.
accepts() {
  place=$(kubectl get "$1" --all-namespaces --output 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' | head -n 1)
  [ -n "$place" ] || return 0
  refusal=$(kubectl get "$1" "${place#* }" --namespace "${place% *}" --output yaml | restorable |
    kubectl patch --local --filename - --type merge --patch '{"metadata":{"name":"osm-write-check"}}' --output yaml |
    kubectl create --dry-run=server --filename - 2>&1) && return
  # Another refusal, such as that of a quota, is not about the webhook.
  case $refusal in *"failed calling webhook"*) ! echo "$refusal" >&2 ;; esac
}

accepts_writes() {
  accepts operatingsystemprofiles.operatingsystemmanager.k8c.io && accepts machinedeployments.cluster.k8s.io
}

has_cert_manager() { kubectl api-resources --api-group cert-manager.io --output name | grep -q '^certificates'; }

# Stops a Deployment.
stop() {
  if exists "$@"; then
    save "$@"
    kubectl scale "$@" --replicas 0
    kubectl rollout status "$@" --timeout 2m
  fi
}

is_stopped() {
  replicas=$(kubectl get "$@" --ignore-not-found --output 'jsonpath={.spec.replicas}')
  [ "${replicas:-0}" = 0 ] || fail "$* runs. Both implementations must never run at the same time, because each would replace the objects of the other."
}

# Starts a Deployment again, with the replicas that it had.
start() {
  replicas=$1
  shift
  if exists "$@"; then
    kubectl scale "$@" --replicas "$replicas"
    kubectl rollout status "$@" --timeout 2m
  fi
}

# A webhook configuration whose webhook does not respond would block writes. Then it is deleted again.
restore_webhook() {
  [ -e "$(copy_of "$@")" ] || return 0
  restore "$@"
  sleep "$SETTLE"
  accepts_writes && return
  kubectl delete "$@" --ignore-not-found
  fail "$* is not restored, because the API server would refuse writes. Correct the webhook, and run this part again."
}

# Names of the OperatingSystemConfigs of MachineDeployments whose user data OSM has not published.
# machine-controller creates no machine of a MachineDeployment without a revision.
unpublished() {
  published=$(kubectl get operatingsystemconfigs.operatingsystemmanager.k8c.io --namespace "$namespace" --output \
    'jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Published")].status}{"\n"}{end}')
  # A value of an annotation may have several lines, so it is not printed.
  kubectl get machinedeployments.cluster.k8s.io --all-namespaces --output \
    'go-template={{range .items}}{{if .metadata.annotations}}{{if index .metadata.annotations "machinedeployment.clusters.k8s.io/revision"}}{{.metadata.name}}-{{.metadata.namespace}}-config{{"\n"}}{{end}}{{end}}{{end}}' |
    while read -r config; do
      echo "$published" | grep -q -x -F "$config=True" || echo "$config"
    done
}

everything_is_published() { [ -z "$(unpublished)" ] || [ "${ACCEPT_REFUSED:-}" = yes ]; }

# Names of the profiles, except the default ones. A sign follows if the upstream OSM can't read its modules, where it takes only strings.
# As long as there is one such profile, it reads none.
marked_profiles() {
  kubectl get operatingsystemprofiles.operatingsystemmanager.k8c.io --all-namespaces --selector "$default_profile!=true" --output go-template='
    {{- define "strings"}}{{range .}}{{if not (eq (printf "%T" .) "string" "<nil>")}}!{{end}}{{end}}{{end}}
    {{- define "modules"}}{{template "strings" .bootcmd}}{{template "strings" .runcmd}}{{template "strings" .rh_subscription}}
      {{- range .yum_repos}}{{template "strings" .}}{{end}}{{end}}
    {{- range .items}}{{.metadata.namespace}}/{{.metadata.name}}
      {{- with .spec}}{{template "modules" .bootstrapConfig.modules}}{{template "modules" .provisioningConfig.modules}}{{end}}{{"\n"}}{{end}}'
}

osm_serves_every_pool() {
  exists configmaps/@SETTINGS@ --namespace "$namespace" || fail "OSM is not installed in namespace $namespace. Run the part install first."
  kubectl rollout status deployments --namespace "$namespace" --selector app.kubernetes.io/instance=osm --timeout 2m
  everything_is_published || fail "OSM has not published the user data of: $(unpublished | xargs). \`osmctl status POOL\` explains it. Wait, or set ACCEPT_REFUSED=yes if these pools need no new machines."
}

stop_go() {
  # Nothing is changed before all permissions are known.
  for kind in validatingwebhookconfigurations mutatingwebhookconfigurations; do
    may delete "$kind"
    may create "$kind"
  done
  may patch deployments.apps --subresource scale --namespace "$namespace"
  may delete leases.coordination.k8s.io --namespace "$namespace"
  may create operatingsystemprofiles.operatingsystemmanager.k8c.io --namespace "$namespace"
  may patch customresourcedefinitions.apiextensions.k8s.io
  may patch namespaces

  # Webhook configurations go before the webhook. They have failurePolicy: Fail, so that without the webhook the API server
  # would refuse every write of MachineDeployments, profiles and configs.
@DELETE_WEBHOOKS@
  no_webhook_is_left
  # Each API server watches the configurations, and calls the webhook until it has noticed.
  sleep "$SETTLE"
  no_webhook_is_left

  # The Deployments are stopped and not deleted, so that the way back is short.
@STOP@
  no_webhook_is_left
  wait_until "the API server to accept writes without the webhook" accepts_writes
  # The upstream OSM leaves its Lease behind, and OSM would wait up to 90 seconds until it counts as unused.
  kubectl delete leases.coordination.k8s.io/@LEASE@ --namespace "$namespace" --ignore-not-found
  echo "The upstream OSM is stopped. Its bootstrap tokens expire within an hour. Next part: install"
}

# Lets the release adopt an object. Helm refuses objects that do not belong to the release.
adopt() {
  exists "$1" || return 0
  owner=$(kubectl get "$1" --output 'jsonpath={.metadata.annotations.meta\.helm\.sh/release-name}')
  [ -z "$owner" ] || return 0
  kubectl label "$1" app.kubernetes.io/managed-by=Helm --overwrite
  kubectl annotate "$1" meta.helm.sh/release-name=osm meta.helm.sh/release-namespace="$namespace" --overwrite
}

install_osm() {
  [ -n "$CHART" ] || fail "Set CHART to the chart: the folder charts/operating-system-manager of a checkout, a packaged file, or an OCI address."
  # Both implementations must never run at the same time.
@ARE_STOPPED@
  no_webhook_is_left
@CREATE_SECRETS@
  mkdir -p "$FOLDER"
  cat >"$FOLDER/values.yaml" <<'@END@'
@VALUES@@END@
  adopt customresourcedefinitions.apiextensions.k8s.io/operatingsystemprofiles.operatingsystemmanager.k8c.io
  adopt customresourcedefinitions.apiextensions.k8s.io/operatingsystemconfigs.operatingsystemmanager.k8c.io
  adopt customresourcedefinitions.apiextensions.k8s.io/workerclusters.operatingsystemmanager.k8c.io
  # Tools that render the chart without the cluster, such as some versions of KubeOne, take it for a part of the release.
  adopt namespaces/cloud-init-settings
  # Helm 4 applies objects on the server, where each field belongs to the program that has set it. Neither `helm` nor KubeOne, which contains Helm,
  # could change a field of the other, and the adopted objects belong to a third. So it applies as Helm 3 does, which lacks this flag.
  client_side=$(helm upgrade --help | grep -q -e '--server-side' && echo --server-side=false) || true
  # shellcheck disable=SC2086
  helm upgrade --install osm "$CHART" --namespace "$namespace" --values "$FOLDER/values.yaml" ${REGISTRY:+--set image.registry="$REGISTRY"} $client_side
  kubectl rollout status deployments --namespace "$namespace" --selector app.kubernetes.io/instance=osm --timeout 5m
  # OSM replaces a bootstrap Secret of the upstream OSM when everything that the new one refers to exists.
  wait_until "OSM to publish $(unpublished | xargs)" everything_is_published
  echo "OSM serves every pool. Next part: clean-up"
}

clean_up() {
@ARE_STOPPED@
  osm_serves_every_pool
  # cert-manager would create the Secret of a Certificate again, so that the Certificate goes first.
  if has_cert_manager; then
    delete certificates.cert-manager.io/operating-system-manager-serving-cert --namespace "$namespace"
    delete issuers.cert-manager.io/operating-system-manager-selfsigned-issuer --namespace "$namespace"
  fi
  delete poddisruptionbudgets.policy/operating-system-manager --namespace "$namespace"
  delete poddisruptionbudgets.policy/operating-system-manager-webhook --namespace "$namespace"
  delete services/operating-system-manager-webhook --namespace "$namespace"
@DELETE_DEPLOYMENTS@
  # A binding goes before its Role, and both before the ServiceAccount.
  delete clusterrolebindings.rbac.authorization.k8s.io/system:operating-system-manager
  delete clusterroles.rbac.authorization.k8s.io/system:operating-system-manager
  for place in "$namespace" cloud-init-settings kube-public default; do
    delete rolebindings.rbac.authorization.k8s.io/operating-system-manager --namespace "$place"
    delete roles.rbac.authorization.k8s.io/operating-system-manager --namespace "$place"
  done
  delete serviceaccounts/operating-system-manager --namespace "$namespace"
  delete serviceaccounts/operating-system-manager-webhook --namespace "$namespace"
  delete secrets/operating-system-manager-webhook-serving-cert --namespace "$namespace"
  delete secrets/webhook-server-cert --namespace "$namespace"
  echo "Next part, when all machines have joined that booted with the upstream OSM: delete-token"
}

delete_the_token() {
  osm_serves_every_pool
  # Machines read their user data with the token until they have joined.
  waiting=$(kubectl get machines.cluster.k8s.io --all-namespaces --output \
    'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}={.status.nodeRef.name}{"\n"}{end}' | grep '=$' | tr -d = | xargs)
  [ -z "$waiting" ] || [ "${ACCEPT_WAITING:-}" = yes ] ||
    fail "These Machines have not joined, and may need the user data of the upstream OSM: $waiting. Wait, or set ACCEPT_WAITING=yes if all of them booted with OSM."
  delete_token secrets/cloud-init-getter-token --namespace cloud-init-settings
  delete rolebindings.rbac.authorization.k8s.io/cloud-init-getter --namespace cloud-init-settings
  delete roles.rbac.authorization.k8s.io/cloud-init-getter --namespace cloud-init-settings
  delete serviceaccounts/cloud-init-getter --namespace cloud-init-settings
  # The user data contains the token. It is not saved, and the way back does not need it.
  kubectl get machinedeployments.cluster.k8s.io --all-namespaces --output \
    'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' | while read -r place pool; do
      kubectl delete secrets --namespace cloud-init-settings --ignore-not-found \
        "$pool-$place-provisioning-config" "$place-$pool-kubelet-bootstrap-config"
    done
  echo "The migration is finished. Delete the folder $FOLDER when you no longer need the way back."
}

back() {
  may delete operatingsystemprofiles.operatingsystemmanager.k8c.io --namespace "$namespace"
  profiles=$(marked_profiles)
  found=$(echo "$profiles" | sed -n 's/!.*//p' | xargs)
  [ -z "$found" ] || fail "The upstream OSM would not start, because it can't read the modules of these profiles: $found. Write each command in bootcmd and runcmd as one string, and the values of other modules as strings, or delete the profile. Nothing was changed."
  # Both implementations must never run at the same time. The release stays, because its bindings let machines join.
  if exists deployments --namespace "$namespace" --selector app.kubernetes.io/instance=osm; then
    kubectl scale deployments --namespace "$namespace" --selector app.kubernetes.io/instance=osm --replicas 0
    kubectl rollout status deployments --namespace "$namespace" --selector app.kubernetes.io/instance=osm --timeout 2m
  fi
  # The upstream OSM creates its own. A stopped osp-controller restores none.
  kubectl delete operatingsystemprofiles.operatingsystemmanager.k8c.io --namespace "$namespace" --selector "$default_profile=true"
  # In the other direction, so that everything exists before what uses it. What was not deleted is skipped.
  restore serviceaccounts/cloud-init-getter --namespace cloud-init-settings
  restore roles.rbac.authorization.k8s.io/cloud-init-getter --namespace cloud-init-settings
  restore rolebindings.rbac.authorization.k8s.io/cloud-init-getter --namespace cloud-init-settings
  restore_token secrets/cloud-init-getter-token --namespace cloud-init-settings
  restore secrets/webhook-server-cert --namespace "$namespace"
  restore secrets/operating-system-manager-webhook-serving-cert --namespace "$namespace"
  restore serviceaccounts/operating-system-manager-webhook --namespace "$namespace"
  restore serviceaccounts/operating-system-manager --namespace "$namespace"
  for place in "$namespace" cloud-init-settings kube-public default; do
    restore roles.rbac.authorization.k8s.io/operating-system-manager --namespace "$place"
    restore rolebindings.rbac.authorization.k8s.io/operating-system-manager --namespace "$place"
  done
  restore clusterroles.rbac.authorization.k8s.io/system:operating-system-manager
  restore clusterrolebindings.rbac.authorization.k8s.io/system:operating-system-manager
  if has_cert_manager; then
    restore issuers.cert-manager.io/operating-system-manager-selfsigned-issuer --namespace "$namespace"
    restore certificates.cert-manager.io/operating-system-manager-serving-cert --namespace "$namespace"
  fi
@RESTORE_DEPLOYMENTS@
  restore services/operating-system-manager-webhook --namespace "$namespace"
  restore poddisruptionbudgets.policy/operating-system-manager-webhook --namespace "$namespace"
  restore poddisruptionbudgets.policy/operating-system-manager --namespace "$namespace"
  # The webhook configurations are last, when the webhook responds.
@RESTORE_WEBHOOKS@
  # A later migration makes new copies.
  if [ -d "$FOLDER" ]; then
    mv "$FOLDER" "$FOLDER-restored-$(date +%Y%m%d%H%M%S)"
  fi
  echo "The upstream OSM runs again. If OSM was installed, continue with step 5 of the section Back in docs/migration.md."
}

part=${1:-}
case $part in
  stop | install | clean-up | delete-token | back) is_this_cluster ;;
  *) fail "Name a part: stop, install, clean-up, delete-token or back." ;;
esac
case $part in
  stop) stop_go ;;
  install) install_osm ;;
  clean-up) clean_up ;;
  delete-token) delete_the_token ;;
  back) back ;;
esac
