#!/usr/bin/env python3
"""Applies a cloud-config, without a second run of cloud-init: write_files, bootcmd, any other module by
`cloud-init single`, runcmd. May be repeated. The last line on stderr says what failed. For Python 2.7 and 3."""
import base64, grp, gzip, io, os, pwd, subprocess, sys, tempfile
import yaml

# Modules, and keys that are named otherwise. No module reads those that are skipped. osm-render takes the first two rows from here.
MODULES = dict((key, line.split(":")[0]) for line in """\
refused: power_state
skipped: cloud_config_modules cloud_final_modules cloud_init_modules launch-index merge_how merge_type migrate output reporting system_info vendor_data version
apk_configure: apk_repos
apt_configure: apt
byobu: byobu_by_default
disk_setup: device_aliases fs_setup
install_hotplug: updates
keys_to_console: ssh ssh_fp_console_blacklist ssh_key_console_blacklist
locale: locale_configfile
mounts: mount_default_fields swap
package_update_upgrade_install: apt_reboot_if_required apt_update apt_upgrade package_reboot_if_required package_update package_upgrade packages
resizefs: resize_rootfs
resolv_conf: manage_resolv_conf
seed_random: random_seed
set_hostname: create_hostname_file fqdn hostname prefer_fqdn_over_hostname preserve_hostname
set_passwords: chpasswd password ssh_pwauth
ssh: allow_public_ssh_keys disable_root disable_root_opts ssh_authorized_keys ssh_deletekeys ssh_genkeytypes ssh_keys ssh_publish_hostkeys ssh_quiet_keygen
ssh_authkey_fingerprints: authkey_hash no_ssh_fingerprints
ubuntu_advantage: ubuntu_pro
ubuntu_autoinstall: autoinstall
ubuntu_drivers: drivers
update_etc_hosts: manage_etc_hosts
users_groups: groups user users
yum_add_repo: yum_repo_dir yum_repos
zypper_add_repo: zypper""".split("\n") for key in line.split()[1:])
# A node without these is better than none.
MAY_FAIL = ("package_update_upgrade_install", "rh_subscription")
OURS = ("write_files", "bootcmd", "runcmd")


def quote(word):
    return "'" + word.replace("'", "'\\''") + "'"


def raw(text):
    return text if isinstance(text, bytes) else text.encode("utf-8")


def from_base64(text):
    text = b"".join(text.split())
    content = base64.b64decode(text)
    if base64.b64encode(content) != text:
        raise ValueError("content is not base64")
    return content


def decode(content, encoding):
    content = raw(content)
    for step in reversed((encoding or "").lower().split("+")):
        if step in ("b64", "base64"):
            content = from_base64(content)
        elif step in ("gz", "gzip"):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read()
        elif step not in ("", "text/plain"):
            raise ValueError("unknown encoding " + encoding)
    return content


def write(entry):
    """Writes a file beside its target, then renames it: nobody ever sees half of it."""
    path = os.path.realpath(entry["path"])
    content = decode(entry.get("content") or "", entry.get("encoding"))
    mode = entry.get("permissions", "0644")
    mode = mode if isinstance(mode, int) else int(mode, 8)
    if entry.get("append") and os.path.exists(path):
        with open(path, "rb") as file:
            before = file.read()
        content = before if content in before else before + content
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder)
    if path.startswith(("/proc/", "/sys/")):
        with open(path, "wb") as file:
            file.write(content)
        return
    handle, temporary = tempfile.mkstemp(prefix=".osm-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            if entry.get("owner"):
                user, _, group = entry["owner"].partition(":")
                uid = pwd.getpwnam(user).pw_uid if user else -1
                os.fchown(handle, uid, grp.getgrnam(group).gr_gid if group else -1)
            os.fsync(handle)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def run(key, commands):
    """Runs commands as cloud-init does: one script of all, judged by its last command."""
    lines = [" ".join(quote("%s" % word) for word in c) if isinstance(c, list) else c for c in commands if c]
    if not lines:
        return
    with tempfile.NamedTemporaryFile(prefix=key + "-") as script:
        script.write(raw("\n".join(lines) + "\n"))
        script.flush()
        call(key, ["/bin/sh", script.name])


def call(what, command, good=(0,), may_fail=False):
    with open(os.devnull) as nothing:
        status = subprocess.call(command, stdin=nothing, stderr=subprocess.STDOUT, env=with_proxy())
    if status in good:
        return
    problem = "%s failed with status %s" % (what, status)
    if not may_fail:
        sys.exit(problem)
    print("warning: " + problem)


def in_order(names):
    """As cloud-init runs them, whatever their order in the document: users before their passwords."""
    order = []
    with open("/etc/cloud/cloud.cfg") as file:
        config = yaml.safe_load(file) or {}
    for stage in ("init", "config", "final"):
        for module in config.get("cloud_%s_modules" % stage) or []:
            name = module[0] if isinstance(module, list) else module
            order.append(name.replace("-", "_"))
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def with_proxy():
    """The environment of what may download. The document brings the node's proxy along."""
    env = dict(os.environ)
    if os.path.exists("/etc/osm/proxy.env"):
        with open("/etc/osm/proxy.env") as file:
            lines = [line.strip() for line in file if "=" in line and not line.startswith("#")]
        env.update((name, value.strip('"')) for name, _, value in (line.partition("=") for line in lines))
    return env


def run_modules(names, path):
    usage = subprocess.check_output(["cloud-init", "single", "--help"]).decode()
    place = ["single", "--file", path] if "--file" in usage else ["--file", path, "single"]
    for name in in_order(names):
        # 2: done, with warnings.
        command = ["cloud-init"] + place + ["--name", name, "--frequency", "always"]
        call("module " + name, command, (0, 2), name in MAY_FAIL)


def main(path):
    os.umask(0o022)
    with open(path, "rb") as file:
        config = yaml.safe_load(file)
    refused = [key for key in config if MODULES.get(key) == "refused"]
    if refused:
        sys.exit(refused[0] + ": would end this before it is over, again and again")
    for entry in config.get("write_files") or []:
        try:
            write(entry)
        except Exception as error:
            sys.exit("write_files: %s: %s" % (entry.get("path"), error))
    run("bootcmd", config.get("bootcmd") or [])
    names = []
    for key in config:
        name = MODULES.get(key, key.replace("-", "_"))
        if key not in OURS and name not in names + ["skipped"]:
            names.append(name)
    if names:
        run_modules(names, path)
    run("runcmd", config.get("runcmd") or [])


if __name__ == "__main__":
    main(sys.argv[1])
