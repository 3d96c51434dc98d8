export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1

apt() {
  apt-get -q -y -o DPkg::Lock::Timeout=900 -o Dpkg::Options::=--force-confold "$@"
}
