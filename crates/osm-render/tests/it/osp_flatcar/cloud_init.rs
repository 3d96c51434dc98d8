//! The profile osp-flatcar-cloud-init, where it differs from osp-flatcar. The matrix of all profiles has its
//! documents judged.

use osm_api::profile::ProvisioningUtility;

use super::*;

/// A machine that has read a bootstrap document which names `document`, with a coreos-cloudinit that applies
/// it as `program` says.
fn booted(kind: Kind, server: &Server, ca: &str, document: &str, program: &str) -> Machine {
    let mut pool = pool("anexia", false);
    pool.os.provisioning_utility = Some(ProvisioningUtility::CloudInit);
    let machine = booted_of(&pool, kind, (&server.url(), ca), document, 1);
    machine.noted("coreos-cloudinit", program);
    machine
}

const DOCUMENT: &str = "/var/lib/osm/provisioning.yaml";

/// The call that applies the document.
fn call(machine: &Machine) -> String {
    let path = machine.path(DOCUMENT);
    format!("coreos-cloudinit --from-file={}\n", path.display())
}

/// A test of osp-flatcar has what the API server may answer: both profiles have the same part of the library.
#[test]
fn the_document_is_applied_whatever_is_cut_short_and_the_token_taken_away_at_every_boot() {
    let authority = Authority::new("127.0.0.1");
    let document = "#cloud-config\nhostname: \"a\"\n";
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        server.always(Answer::ok(secret(document)));
        let fails = "[ -e \"$MACHINE/works\" ] || { echo 'Writing file'; echo 'Failed to apply cloud-config: no space' >&2; exit 1; }";
        let machine = booted(kind, &server, &authority.ca, document, fails);
        let run = machine.start(BOOTSTRAP);
        let complaint = "can't apply the document: Failed to apply cloud-config: no space";
        machine.wait_for_log(0, complaint);
        run.kill();
        assert!(!machine.has("/var/lib/osm/bootstrapped") && machine.has("/etc/osm/api-token"));

        // What was kept is no longer whole.
        machine.put(DOCUMENT, "damaged");
        let seen = machine.log().len();
        let run = machine.start(BOOTSTRAP);
        machine.wait_for_log(seen, complaint);
        machine.put("/works", "");
        run.ends_well();
        assert!(machine.calls().ends_with(&call(&machine)), "{kind:?}");
        // What is there and whole is not fetched again.
        assert_eq!(server.requests().len(), 2);
        assert_eq!(machine.read(DOCUMENT), document);
        assert_eq!(machine.mode(DOCUMENT), 0o600);
        assert!(machine.has("/var/lib/osm/bootstrapped") && !machine.has("/run/osm/osm-bootstrap/answer"));
        let console = machine.read("/dev/console");
        let end = "the provisioning document is applied\n";
        assert!(console.ends_with(end), "{console}");
        has_used_its_token(&machine, &server);

        // coreos-cloudinit writes it at every boot.
        machine.put("/etc/osm/api-token", "Authorization: Bearer a.b.c\n");
        machine.remove("/calls");
        machine.runs(BOOTSTRAP);
        assert!(!machine.has("/etc/osm/api-token"));
        assert_eq!((server.requests().len(), machine.calls()), (2, String::new()));
        // Which systemd lets it do.
        let condition = machine.read("/etc/systemd/system/osm-bootstrap.service.d/10-every-boot.conf");
        assert!(condition.ends_with("\nConditionPathExists=\n"), "{condition}");
    }
}
