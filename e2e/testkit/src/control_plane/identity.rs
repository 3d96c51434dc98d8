//! Kubeconfigs for ServiceAccounts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{ControlPlane, private_file};

/// Long enough for any test; the server may grant less.
const TOKEN_LIFE_SECONDS: i64 = 24 * 60 * 60;

/// Of the next kubeconfig.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl ControlPlane {
    /// A token of an existing ServiceAccount, asked for 24 h.
    ///
    /// # Errors
    /// When there is no such ServiceAccount.
    pub async fn token(&self, namespace: &str, service_account: &str) -> Result<String> {
        let accounts = Api::<ServiceAccount>::namespaced(self.admin()?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_LIFE_SECONDS),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(service_account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("token of ServiceAccount {namespace}/{service_account}"))?;
        Ok(answer.status.context("TokenRequest without status")?.token)
    }

    /// Writes a kubeconfig (mode 0600) that acts as an existing ServiceAccount, with a token of its own. Each
    /// call writes another file: services restart when theirs changes.
    ///
    /// # Errors
    /// When there is no such ServiceAccount.
    pub async fn identity(&self, namespace: &str, service_account: &str) -> Result<PathBuf> {
        let token = self.token(namespace, service_account).await?;
        let folder = self.directory.path().join("identities").join(namespace);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{service_account}-{number}.kubeconfig"));
        private_file(&path, &self.kubeconfig(&token))?;
        Ok(path)
    }

    /// A client that acts as an existing ServiceAccount.
    ///
    /// # Errors
    /// When there is no such ServiceAccount.
    pub async fn client_as(&self, namespace: &str, service_account: &str) -> Result<Client> {
        self.client(&self.token(namespace, service_account).await?)
    }
}

/// A kubeconfig with one cluster, one user and one context.
#[must_use]
pub fn kubeconfig(url: &str, ca_pem: &str, token: &str) -> String {
    let ca = BASE64_STANDARD.encode(ca_pem);
    format!(
        "apiVersion: v1
kind: Config
current-context: default
contexts:
- name: default
  context: {{cluster: default, user: default}}
clusters:
- name: default
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: default
  user:
    token: {token}
"
    )
}
