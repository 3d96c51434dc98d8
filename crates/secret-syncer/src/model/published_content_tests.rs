//! What is stored beside a document: a committed example, and the bounds.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Secret;
use osm_api::config::{LateBound, LateBoundKind};
use osm_api::content::Content;
use osm_api::{digest, gzip, names};
use osm_user_data::LateValues;
use serde_json::json;

use crate::model::documents::Documents;
use crate::model::published_content::{
    MAX_STORED_BYTES, MAX_UNPACKED_BYTES, Published, PublishedContent, entries,
};
use crate::model::record::{DOCUMENT_FORMAT, Record, of_entries};
use crate::model::view::SecretView;

/// The provisioning Secrets of two pools with [`everything`] in them. Pools have them for as long as their
/// tokens are renewed, so a release that stores contents in another way gets another file.
const STORED: &str = include_str!("published_content/compressed.json");

const POOL: &str = "0123456789abcdef0123";
const PASSWORD: &str = "registry/a.example/password";

/// The stage that decides whether a pool has a kubeconfig Secret.
const PROVISIONING: [&str; 2] = [
    "plain",
    "%%osm-late{kubelet/kubeconfig-secret-name,raw}%% %%osm-late{api/token,raw}%%",
];

/// A content with every field, whose provisioning stage has this text.
fn everything(provisioning: &str) -> Content {
    let stage = |text: &str| {
        json!({
            "units": [{"name": "a.service", "enable": true, "mask": false, "content": "[Install]\nWantedBy=multi-user.target\n",
                "dropIns": [{"name": "10.conf", "content": "[Service]\n"}]}],
            "files": [{"path": "/a", "permissions": 755, "content": {"inline": {"encoding": "plain", "data": text}}}],
            "userSSHKeys": ["ssh-ed25519 AAAA ä"],
            "modules": {"runcmd": [["true"], "false"], "apt": {"b": 1, "a": null}},
        })
    };
    let bootstrap = "%%osm-late{api/token,raw}%% %%osm-late{provisioning/secret-name,raw}%% \
                     %%osm-late{provisioning/sha256,raw}%% %%osm-late{registry/a.example/password,raw}%%";
    let source = json!({"namespace": "n", "name": "s", "key": "a.example"});
    let mut spec: Content = serde_json::from_value(json!({
        "osName": "ubuntu",
        "cloudProvider": {"name": "openstack"},
        "bootstrapConfig": stage(bootstrap),
        "provisioningConfig": stage(provisioning),
        "provisioningUtility": "cloud-init",
        "machineDeployment": {"namespace": "n", "name": "p", "uid": "u", "revision": "1", "templateDigest": "t"},
        "digest": "d",
        "lateBoundValues": [
            {"id": "api/token", "kind": "APIToken"},
            {"id": "kubelet/kubeconfig-secret-name", "kind": "KubeconfigSecretName"},
            {"id": "kubelet/token", "kind": "KubeletToken"},
            {"id": "provisioning/secret-name", "kind": "ProvisioningSecretName"},
            {"id": "provisioning/sha256", "kind": "ProvisioningDigest"},
            {"id": "registry/a.example/password", "kind": "RegistryPassword", "source": source},
        ],
        "kubeletKubeconfig": "token: %%osm-late{kubelet/token,raw}%%\n",
    }))
    .unwrap();
    if provisioning == PROVISIONING[0] {
        spec.kubelet_kubeconfig = None;
        spec.late_bound_values
            .retain(|late| !late.id.starts_with("kubelet/"));
    }
    spec
}

fn made(spec: &Content, password: &str) -> Documents {
    let values = LateValues::from([(PASSWORD.to_owned(), password.to_owned())]);
    Documents::make(spec.clone(), values, POOL).unwrap()
}

fn secret(documents: &Documents) -> Secret {
    serde_json::from_value(
        json!({"metadata": {"name": names::provisioning_secret_name(POOL, "a")}, "immutable": true, "data": documents.entries}),
    )
    .unwrap()
}

fn read(secret: &Secret) -> Option<Published> {
    let record = Record {
        provisioning_secret: "osm-provisioning-a".into(),
        provisioning_uid: None,
        revision: "1".into(),
        digest: "d".into(),
        published_from: String::new(),
    };
    Published::read(secret.clone(), POOL, record)
}

fn content_text(secret: &Secret) -> String {
    let data = secret.data.as_ref().unwrap();
    gzip::unpack(&data[names::CONTENT_GZIP_KEY].0, MAX_UNPACKED_BYTES).unwrap()
}

/// A release that fills in documents differently needs another [`DOCUMENT_FORMAT`], so that every pool is
/// compared once.
#[test]
fn the_document_format_stands_for_these_documents() {
    let digests = PROVISIONING.map(|case| made(&compressed(everything(case)), "hunter2").content.digest);
    assert_eq!(
        (DOCUMENT_FORMAT, digests.each_ref().map(|digest| &digest[..16])),
        (1, ["641db6201fae21f2", "3188b3d832f8206f"]),
        "documents are filled in differently: raise DOCUMENT_FORMAT, and put its number and the digests here"
    );
}

#[test]
fn what_is_published_is_renewed_without_anything_else() {
    let secrets: List<Secret> = serde_json::from_str(STORED).unwrap();
    assert_eq!(secrets.items.len(), PROVISIONING.len());
    for (secret, case) in secrets.items.iter().zip(PROVISIONING) {
        let published = read(secret).unwrap_or_else(|| panic!("{case}: is not read"));
        let today = made(&compressed(everything(case)), "hunter2");
        assert_eq!(
            content_text(secret),
            content_text(&self::secret(&today)),
            "{case}"
        );
        let again = Documents::published(&published, POOL).unwrap();
        assert_eq!(again.provisioning, today.provisioning, "{case}");
        let renewed = read(&self::secret(&again));
        assert!(renewed.is_some(), "{case}: is not renewed a second time");
        if case == PROVISIONING[0] {
            // The document has no tokens, so the Secret is the same.
            let view = SecretView::of(secret);
            assert_eq!(view.entries, of_entries(&again.entries), "{case}");
        }
    }
}

/// A text of so many bytes. Compressed, it has three quarters of them.
fn random(bytes: usize) -> String {
    let hashes = (0_u64..).flat_map(|number| digest::sha256(&number.to_be_bytes()));
    let text = URL_SAFE_NO_PAD.encode(hashes.take(bytes).collect::<Vec<_>>());
    text.chars().take(bytes).collect()
}

/// The same, for machines that unpack the document.
fn compressed(mut spec: Content) -> Content {
    let inline = spec.bootstrap_config.files[0].content.inline.as_mut().unwrap();
    inline.data.push_str(" %%osm-late{provisioning/key,raw}%%");
    spec.late_bound_values.push(LateBound {
        id: "provisioning/key".into(),
        kind: LateBoundKind::ProvisioningKey,
        source: None,
    });
    spec
}

#[test]
fn a_content_is_left_out_only_where_the_secret_would_be_too_large() {
    let in_bootstrap = everything(PROVISIONING[0]);
    let in_both = everything(&format!("%%osm-late{{{PASSWORD},raw}}%%"));
    let same = |bytes| "a".repeat(bytes);
    let cases = [
        (
            "before it is compressed",
            compressed(in_both.clone()),
            same(MAX_STORED_BYTES),
            true,
        ),
        (
            "a document as it is",
            in_both.clone(),
            same(MAX_STORED_BYTES),
            false,
        ),
        ("most of it", in_bootstrap.clone(), random(MAX_STORED_BYTES), true),
        (
            "more",
            in_bootstrap.clone(),
            random(MAX_STORED_BYTES * 3 / 2),
            false,
        ),
    ];
    for (case, spec, password, is_kept) in cases {
        let documents = made(&spec, &password);
        let secret = secret(&documents);
        let data = secret.data.as_ref().unwrap();
        assert_eq!(data.contains_key(names::CONTENT_GZIP_KEY), is_kept, "{case}");
        let published = read(&secret);
        assert_eq!(published.is_some(), is_kept, "{case}");
        if let Some(published) = published {
            let stored: usize = data.values().map(|bytes| bytes.0.len()).sum();
            assert!(stored <= MAX_STORED_BYTES, "{case}: {stored}");
            let again = Documents::published(&published, POOL).unwrap();
            assert!(again.content == documents.content, "{case}");
        }
    }
}

#[test]
fn no_secret_is_written_that_unpacks_to_more_than_is_read() {
    let content = |bytes: usize| {
        let values = LateValues::from([(PASSWORD.to_owned(), "a".repeat(bytes))]);
        PublishedContent::of(&everything(PROVISIONING[0]), &values)
    };
    let document = |bytes: usize| "a".repeat(bytes);
    let (most, small) = (MAX_UNPACKED_BYTES, MAX_UNPACKED_BYTES - 10_000);
    for (case, document, content, is_kept) in [
        ("both", document(most), content(small), true),
        ("document", document(most + 1), content(1), false),
        ("content", document(1), content(most), false),
    ] {
        let entries = entries(&document, true, &content);
        assert_eq!(entries.contains_key(names::CONTENT_GZIP_KEY), is_kept, "{case}");
        let mut secret = secret(&made(&everything(PROVISIONING[0]), "hunter2"));
        secret.data = Some(entries);
        assert_eq!(read(&secret).is_some(), is_kept, "{case}");
    }
}
