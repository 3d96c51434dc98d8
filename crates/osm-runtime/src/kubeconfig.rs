//! Reads kubeconfigs: that of the service itself, and those of other clusters, whose owners may have written
//! them.

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use osm_api::rbac::Service;

use crate::args::CommonArgs;
use crate::transport::{self, Share, Transports};
use crate::{client, proxy};

/// The configuration by which the service itself connects, and transports by it. Without `--kubeconfig`, kube finds
/// a configuration, and renews the token of a pod's ServiceAccount.
///
/// # Errors
/// No configuration is found, or it is not valid.
pub(crate) async fn own(args: &CommonArgs, service: Service) -> anyhow::Result<(Config, Transports)> {
    let Some(path) = &args.kubeconfig else {
        let config = Config::infer().await.context(
            "no API server is configured; set --kubeconfig or the variable KUBECONFIG, or run in a pod with a ServiceAccount",
        )?;
        return complete(config, service, Share::Alone)
            .context("$KUBECONFIG, ~/.kube/config or the pod's ServiceAccount");
    };
    let read = async {
        // This resolves the relative names of further files.
        let kubeconfig = Kubeconfig::read_from(path).map_err(without_values)?;
        open(kubeconfig, service, Share::Alone).await
    };
    read.await
        .with_context(|| format!("--kubeconfig {}", path.display()))
}

/// The configuration of another cluster, and transports by it, from the text of a kubeconfig. The owner of that
/// cluster may have written it.
///
/// # Errors
/// A text that is not a kubeconfig, and fields by which it would run a program, send a file of this pod to its
/// API server, act as someone else, or trust any API server. No message has a value of the text.
pub(crate) async fn foreign(text: &str, service: Service) -> anyhow::Result<(Config, Transports)> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(without_values)?;
    if let Some(problem) = problem_of_foreign(&kubeconfig) {
        bail!("the kubeconfig of another cluster {problem}");
    }
    open(kubeconfig, service, Share::OfFleet).await
}

async fn open(
    kubeconfig: Kubeconfig,
    service: Service,
    share: Share,
) -> anyhow::Result<(Config, Transports)> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    complete(config.map_err(without_values)?, service, share)
}

fn complete(config: Config, service: Service, share: Share) -> anyhow::Result<(Config, Transports)> {
    let mut config = client::complete(config, service);
    proxy::except(&mut config, |name| std::env::var(name).ok());
    let transports = transport::connect(&config, share)?;
    Ok((config, transports))
}

/// What the kubeconfig of another cluster must not have or lacks, and what to do.
fn problem_of_foreign(kubeconfig: &Kubeconfig) -> Option<String> {
    const CA: &str = "put the CA of the API server into certificate-authority-data";
    const CREDENTIALS: &str = "put a token or a client certificate into the kubeconfig itself";
    const USER: &str = "use the credentials of the user itself";
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let of_clusters = clusters.clone().flat_map(|cluster| {
        let skips = cluster.insecure_skip_tls_verify == Some(true);
        [
            (
                "certificate-authority",
                cluster.certificate_authority.is_some(),
                CA,
            ),
            ("insecure-skip-tls-verify", skips, CA),
        ]
    });
    let of_users = users.flat_map(|user| {
        [
            ("exec", user.exec.is_some(), CREDENTIALS),
            ("auth-provider", user.auth_provider.is_some(), CREDENTIALS),
            ("tokenFile", user.token_file.is_some(), CREDENTIALS),
            (
                "client-certificate",
                user.client_certificate.is_some(),
                CREDENTIALS,
            ),
            ("client-key", user.client_key.is_some(), CREDENTIALS),
            ("as", user.impersonate.is_some(), USER),
            ("as-uid", user.impersonate_uid.is_some(), USER),
            ("as-groups", user.impersonate_groups.is_some(), USER),
            ("as-user-extra", user.impersonate_user_extra.is_some(), USER),
        ]
    });
    let mut found = of_clusters.chain(of_users).filter(|(_, is_there, _)| *is_there);
    if let Some((field, _, remedy)) = found.next() {
        return Some(format!("must not have the field {field}; {remedy}"));
    }
    let mut problems = clusters.filter_map(|cluster| {
        let server = cluster.server.as_deref().unwrap_or_default();
        if !server.starts_with("https://") {
            return Some("must name its server as https://HOST:PORT; correct the field server".to_owned());
        }
        let ca = cluster.certificate_authority_data.as_deref().unwrap_or_default();
        ca.is_empty()
            .then(|| format!("lacks the field certificate-authority-data; {CA}"))
    });
    problems.next()
}

/// A parser's message may quote the file, and so a token. Only the place of the error is kept.
fn without_values(error: KubeconfigError) -> anyhow::Error {
    use KubeconfigError as E;
    let place = match error {
        E::ReadConfig(error, _) => return anyhow::Error::new(error).context("can't be read"),
        E::Parse(error) => match error.location() {
            Some(at) => format!("line {}, column {}", at.line(), at.column()),
            None => "its YAML can't be read".to_owned(),
        },
        E::LoadContext(_) => "current-context names no context in it".to_owned(),
        E::LoadClusterOfContext(_) => "the current context names no cluster in it".to_owned(),
        E::LoadCertificateAuthority(LoadDataError::DecodeBase64(_)) | E::ParseCertificates(_) => {
            "certificate-authority-data is not PEM in base64".to_owned()
        }
        E::LoadClientCertificate(LoadDataError::DecodeBase64(_)) => {
            "client-certificate-data is not base64".to_owned()
        }
        E::LoadClientKey(LoadDataError::DecodeBase64(_)) => "client-key-data is not base64".to_owned(),
        error => return anyhow::Error::new(error).context("is not a valid kubeconfig"),
    };
    anyhow::anyhow!("is not a valid kubeconfig: {place}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    const SERVICE: Service = Service::OscController;

    fn kubeconfig(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.pem}}}}]\n\
             users: [{{name: c, user: {user}}}]\n"
        )
    }

    fn base64(text: &str) -> String {
        let encoded = serde_json::to_value(ByteString(text.into())).unwrap();
        encoded.as_str().unwrap().to_owned()
    }

    /// What is replaced in a good kubeconfig and by what, and what is said of it.
    const REFUSED: &str = r#"
token: a -> exec: {command: hunter2, apiVersion: client.authentication.k8s.io/v1} => must not have the field exec; put a token
token: a -> auth-provider: {name: hunter2, config: {}} => must not have the field auth-provider; put a token
token: a -> tokenFile: /hunter2 => must not have the field tokenFile; put a token
token: a -> client-certificate: /hunter2 => must not have the field client-certificate; put a token
token: a -> client-key: /hunter2 => must not have the field client-key; put a token
token: a -> token: a, as: hunter2 => must not have the field as; use the credentials
token: a -> token: a, as-uid: hunter2 => must not have the field as-uid; use the credentials
token: a -> token: a, as-groups: [hunter2] => must not have the field as-groups; use the credentials
token: a -> token: a, as-user-extra: {a: [hunter2]} => must not have the field as-user-extra; use the credentials
server: -> certificate-authority: /hunter2, server: => must not have the field certificate-authority; put the CA
server: -> insecure-skip-tls-verify: true, server: => must not have the field insecure-skip-tls-verify; put the CA
https: -> http: => must name its server as https://HOST:PORT; correct the field server
authority-data: -> authority-data: hunter2 => certificate-authority-data is not PEM in base64
current-context: c -> current-context: hunter2 => current-context names no context in it
{cluster: c -> {cluster: hunter2 => the current context names no cluster in it
users: [ -> users: [hunter2, => line 6, column 9
"#;

    #[tokio::test]
    async fn a_kubeconfig_of_another_cluster_does_nothing_but_connect_to_it() {
        _ = rustls::crypto::ring::default_provider().install_default();
        let ca = rcgen::generate_simple_self_signed(["ca".to_owned()])
            .unwrap()
            .cert
            .pem();
        let good = kubeconfig("{token: a}")
            .replace("authority: ca.pem", &format!("authority-data: {}", base64(&ca)));
        let of_user = |user: &str| good.replace("token: a", user);
        let of_cluster = |field: &str| good.replace("server: ", &format!("{field}, server: "));
        let identity = format!(
            "client-key-data: {}, client-certificate-data: {}",
            base64("-----BEGIN PRIVATE KEY hunter2"),
            base64(&ca)
        );
        let mut cases = vec![(
            of_user(&identity),
            "client-certificate-data and client-key-data are not PEM",
        )];
        for case in REFUSED.trim().lines() {
            let (change, expected) = case.split_once(" => ").unwrap();
            let (from, to) = change.split_once(" -> ").unwrap();
            assert!(good.contains(from), "{from}");
            cases.push((good.replace(from, to), expected));
        }
        let without_ca = kubeconfig("{token: hunter2}").replace(", certificate-authority: ca.pem", "");
        cases.push((
            without_ca,
            "lacks the field certificate-authority-data; put the CA",
        ));
        for (text, expected) in cases {
            let problem = foreign(&text, SERVICE).await.err().context(expected);
            let problem = format!("{:#}", problem.unwrap());
            let is_said = problem.contains(expected) && !problem.contains("hunter2");
            assert!(is_said, "{expected}: {problem}");
        }
        for text in [
            &good,
            &of_cluster("proxy-url: 'http://user:hunter2@proxy:3128'"),
            &of_cluster("insecure-skip-tls-verify: false"),
        ] {
            assert!(foreign(text, SERVICE).await.is_ok(), "{text}");
        }
    }

    #[tokio::test]
    async fn mistakes_are_one_sentence_without_values() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("kubeconfig");
        let args = CommonArgs {
            kubeconfig: Some(path.clone()),
            ..CommonArgs::default()
        };
        let read = async || own(&args, SERVICE).await;
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(
            problem.starts_with("--kubeconfig ") && problem.contains("can't be read"),
            "{problem}"
        );
        for text in [
            "nothing: [hunter2",
            "users: hunter2",
            "users: [{name: c, user: hunter2}]",
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = format!("{:#}", read().await.err().unwrap());
            assert!(
                problem.contains(": is not a valid kubeconfig: line 1, column "),
                "{problem}"
            );
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        std::fs::write(&path, kubeconfig("{token: a}")).unwrap();
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(problem.contains("ca.pem"), "{problem}");
    }
}
