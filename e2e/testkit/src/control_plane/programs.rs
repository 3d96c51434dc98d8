//! The command lines of the programs of a control plane.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use anyhow::Result;

use super::{ADVERTISED_ADDRESS, Options, audit};

/// Cluster IPs of Services.
const SERVICE_NETWORK: &str = "10.96.0.0/16";

/// Addresses of pods; every node has a part of it as its `spec.podCIDR`.
const POD_NETWORK: &str = "10.244.0.0/16";

/// The same of IPv6, where machines may have that.
const SERVICE_NETWORK_IPV6: &str = "fd00:10:96::/112";
const POD_NETWORK_IPV6: &str = "fd00:10:244::/48";

/// What command lines depend on.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    /// Where certificates, keys and data are.
    pub(super) directory: &'a Path,
    pub(super) options: &'a Options,
    pub(super) port: u16,
}

impl Programs<'_> {
    pub(super) fn etcd(&self) -> Vec<String> {
        vec![
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={}", self.etcd_url()),
            // Must be an address with a port; only other members would use it.
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    pub(super) fn kube_apiserver(&self) -> Result<Vec<String>> {
        let nodes = self.options.nodes.map(|address| address.to_string());
        let mut arguments = vec![
            format!("--etcd-servers={}", self.etcd_url()),
            format!("--bind-address={}", self.options.bind_address()),
            format!(
                "--advertise-address={}",
                nodes.as_deref().unwrap_or(ADVERTISED_ADDRESS)
            ),
            format!("--secure-port={}", self.port),
            format!("--cert-dir={}", self.file("certs")),
            format!("--tls-cert-file={}", self.file("apiserver.crt")),
            format!("--tls-private-key-file={}", self.file("apiserver.key")),
            format!("--client-ca-file={}", self.file("ca.crt")),
            format!("--token-auth-file={}", self.file("tokens.csv")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.file("sa.pub")),
            format!("--service-account-signing-key-file={}", self.file("sa.key")),
            format!(
                "--service-cluster-ip-range={}",
                self.networks(SERVICE_NETWORK, SERVICE_NETWORK_IPV6)
            ),
            "--allow-privileged".to_owned(),
        ];
        if nodes.is_some() {
            arguments.extend([
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                format!("--kubelet-client-certificate={}", self.file("kubelet-client.crt")),
                format!("--kubelet-client-key={}", self.file("kubelet-client.key")),
                // A kubelet whose serving certificate nobody has approved gives no logs.
                format!("--kubelet-certificate-authority={}", self.file("ca.crt")),
                // Nothing here resolves the names of machines.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                // It calls webhooks at the addresses of their pods, because there is no kube-proxy.
                "--enable-aggregator-routing".to_owned(),
            ]);
        }
        if self.options.audit || self.options.audit_bodies {
            arguments.extend(audit::arguments(self.directory, self.options.audit_bodies)?);
        }
        Ok(arguments)
    }

    pub(super) fn kube_controller_manager(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--kubeconfig={}", self.file("admin.kubeconfig")),
            format!("--controllers={}", self.options.all_controllers().join(",")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(), // serves nothing
            format!("--cluster-signing-cert-file={}", self.file("ca.crt")),
            format!("--cluster-signing-key-file={}", self.file("ca.key")),
            format!("--root-ca-file={}", self.file("ca.crt")),
            format!("--service-account-private-key-file={}", self.file("sa.key")),
        ];
        if self.options.nodes.is_some() {
            arguments.extend([
                "--allocate-node-cidrs".to_owned(),
                format!("--cluster-cidr={}", self.networks(POD_NETWORK, POD_NETWORK_IPV6)),
                format!(
                    "--service-cluster-ip-range={}",
                    self.networks(SERVICE_NETWORK, SERVICE_NETWORK_IPV6)
                ),
                // Each controller with no more rights than it has in any cluster.
                "--use-service-account-credentials".to_owned(),
            ]);
        }
        arguments
    }

    pub(super) fn kube_scheduler(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.file("admin.kubeconfig")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(), // serves nothing
        ]
    }

    fn networks(&self, ipv4: &str, ipv6: &str) -> String {
        if self.options.nodes_ipv6.is_some() {
            format!("{ipv4},{ipv6}")
        } else {
            ipv4.to_owned()
        }
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// A socket in our private directory: no port to find, and nobody else gets at the data.
    fn etcd_url(&self) -> String {
        format!("unix://{}", self.file("etcd.sock"))
    }
}

impl Options {
    /// The addresses by which machines reach the API server.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ipv6 = self.nodes_ipv6.map(Ipv6Addr::into);
        self.nodes.map(Ipv4Addr::into).into_iter().chain(ipv6)
    }

    /// Where the API server listens.
    pub(super) fn bind_address(&self) -> Ipv4Addr {
        // Machines come by one address, our own processes by loopback.
        if self.nodes.is_some() {
            Ipv4Addr::UNSPECIFIED
        } else {
            Ipv4Addr::LOCALHOST
        }
    }

    /// What kube-controller-manager runs, by its names; nothing if it isn't to run.
    pub(super) fn all_controllers(&self) -> Vec<&'static str> {
        let all = self.nodes.map(|_| "*"); // those that are on by default
        all.into_iter().chain(self.controllers.iter().copied()).collect()
    }
}
