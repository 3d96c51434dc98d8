//! The text of one Go template.

use std::thread;

use osm_gotemplate::budget::Limits;
use osm_gotemplate::value::{Map, Named, Pointer, Struct, Type};
use osm_gotemplate::{TemplateSet, Value};
use serde_json::json;

use crate::template;

/// Steps and bytes for one input.
const LIMITS: (u64, usize) = (200_000, 4 << 20);

/// What osm-gotemplate promises to suffice.
const STACK: usize = 1 << 20;

/// Whatever a template says: it renders the same text twice or fails with a message, within a small stack,
/// and never panics. No message about a profile with it has a value of the pool or of the settings.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    by_itself(text.to_owned());
    let file = |path: &str, data: &str| json!({"path": path, "content": {"inline": {"data": data}}});
    let stage = json!({
        "templates": {"named": text},
        "files": [file("/file", text), file("/calling", "{{ template \"named\" }}")],
    });
    // One of both, so that an error of the first does not hide the second.
    let (stages, number) = (["bootstrapConfig", "provisioningConfig"], text.len() % 2);
    let mut profile = json!({
        "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "supportedCloudProviders": [{"name": "openstack"}],
    });
    if let (Some(profile), Some(name)) = (profile.as_object_mut(), stages.get(number)) {
        profile.insert((*name).to_owned(), stage);
    }
    template::render_twice(profile, text);
}

fn by_itself(text: String) {
    let Ok(thread) = thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || render(&text))
    else {
        return;
    };
    assert!(thread.join().is_ok(), "a panic");
}

fn render(text: &str) {
    let limits = || Limits::new(LIMITS.0, LIMITS.1);
    let mut set = TemplateSet::new("input");
    if let Err(error) = set.parse("input", text, &limits()) {
        assert!(!error.to_string().is_empty(), "an error without a message");
        return;
    }
    let attempt = || {
        set.execute("input", &data(), &limits())
            .map_err(|error| error.to_string())
    };
    assert_eq!(attempt(), attempt(), "differs the second time");
}

/// A bit of everything that data of profiles has.
fn data() -> Value {
    let gates = [("A".into(), Value::Bool(true)), ("B".into(), Value::Bool(false))];
    let fields = vec![
        ("KubeVersion".into(), Value::string("v1.34.1")),
        ("CloudProviderName".into(), {
            Value::Named(Named::new("v1alpha1.CloudProvider", Value::string("aws")))
        }),
        (
            "MaxPods".into(),
            Value::Pointer(Pointer::to_value(Value::int(110))),
        ),
        ("HTTPProxy".into(), Value::Pointer(Pointer::nil(Type::String))),
        ("Servers".into(), Value::strings(["1.1.1.1", "9.9.9.9"])),
        (
            "KubeletFeatureGates".into(),
            Value::Map(Map::new(Type::Bool, gates.into())),
        ),
        (
            "a".into(),
            Value::list(vec![Value::int(1), Value::Nil, Value::float(1.5)]),
        ),
    ];
    Value::Pointer(Pointer::to_value(Value::Named(Named::new(
        "resources.filesData",
        Value::Struct(Struct::new(fields)),
    ))))
}

/// Every construct, and functions that could take much time or memory.
pub fn seeds() -> Vec<String> {
    [
        "{{- /* c */ -}} {{if and .KubeVersion (not .HTTPProxy)}}a{{else if eq .CloudProviderName \"aws\"}}b{{else}}c{{end}}",
        "{{range $k, $v := .KubeletFeatureGates}}{{$k}}: {{$v}}{{if $v}}{{continue}}{{end}}{{break}}{{else}}none{{end}}",
        "{{with $x := .MaxPods}}{{$x}}{{else with .Servers}}{{index . 0}}{{end}}{{$y := 1}}{{$y = add $y 2}}{{$y}}",
        "{{define \"x\"}}[{{.}}]{{template \"y\" .}}{{end}}{{define \"y\"}}{{template \"x\" .}}{{end}}{{template \"x\" 1}}",
        "{{block \"b\" .Servers}}{{len .}}{{join \",\" .}}{{end}}{{.Missing}}",
        "{{printf \"%5v|%-8s|%x|%q|%t|%05d\" 1.5 \"a\" . .a true 3}}{{printf \"%1000000d\" 1}}",
        "curl -H 'Authorization: Bearer {{.Token}}' {{.ServerURL}}/{{.SecretName}} {{.BootstrapKubeconfig | indent 4}}{{.Token | trunc 9}}",
        "{{.BootstrapKubeconfigSecretName}}{{.ContainerRuntimeConfig}}{{with .HTTPProxy}}{{atoi .}}{{end}}{{fail .HostCACert}}",
        "{{range $k, $v := .KubeReserved}}{{$k}}={{$v}}{{end}}{{.ImageMinimumGCAge}}{{.NetworkConfig.DNS.Servers}}{{\"{{\"}}.Token}}",
        "{{repeat 1000000000 \"x\"}}",
        "{{range 1000000000}}{{end}}{{printf \"%6.2f\" 1.5}}",
        "{{indent 1000000000 \"a\\nb\"}}{{substr 0 -1 \"ä\"}}{{trunc -3 \"äöü\"}}",
        "{{$d := dict \"a\" (dict)}}{{$_ := set $d.a \"b\" $d}}{{$d}}",
        "{{$l := list}}{{range 100}}{{$l = list $l $l}}{{end}}{{$l | toJson}}{{$l | deepEqual $l}}",
        "{{regexReplaceAll \"(a*)*b\" \"aaaaaaaaaaaaaaaaaaaaaaaa\" \"$1\"}}{{regexFind \"(x{1000}){1000}\" \"x\"}}{{regexMatch `(?i)[^\\W]\\b[[:alpha:]&&[a]` .KubeVersion}}",
        "{{semverCompare \">=1.33 <1.35 || ~2\" .KubeVersion}}{{div 1 0}}{{mod 1 0}}",
        "{{fromYaml \"a: &a [1, 2]\\nb: *a\\n\" | toToml}}{{fromJson \"{\\\"a\\\":[1,{}]}\" | toYaml}}{{toJson .}}",
        "{{((((((((((1))))))))))}}{{1 | print | print}}{{(index .a 0)}}{{'\\n'}}{{0x1p-2}}{{1e400}}{{`raw`}}",
        "{{b64dec \"!\"}}{{date \"2006\" 0}}",
    ]
    .map(str::to_owned)
    .to_vec()
}
