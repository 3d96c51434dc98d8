// Package resources has the data of profiles, under the names that %T and error texts print.
package resources

import (
	"net"

	"example.com/operating-system-manager/e2e/judges/gotemplate/providerconfig"
	v1 "example.com/operating-system-manager/e2e/judges/gotemplate/v1"
	"example.com/operating-system-manager/e2e/judges/gotemplate/v1alpha1"
)

// New returns the data of a profile, with every field zero.
func New() any {
	return &filesData{}
}

type amazonLinuxConfig struct {
	DistUpgradeOnBoot bool
}

type flatcarConfig struct {
	DisableAutoUpdate   bool
	DisableLocksmithD   bool
	DisableUpdateEngine bool
	ProvisioningUtility string
}

type rhelConfig struct {
	DistUpgradeOnBoot               bool
	RHELSubscriptionManagerUser     string
	RHELSubscriptionManagerPassword string
	RHSMOfflineToken                string
	AttachSubscription              bool
	RHELUseSatelliteServer          bool
	RHELSatelliteServer             string
	RHELOrganizationName            string
	RHELActivationKey               string
}

type ubuntuConfig struct {
	DistUpgradeOnBoot bool
}

type rockyLinuxConfig struct {
	DistUpgradeOnBoot bool
}

type filesData struct {
	KubeVersion                   string
	KubeletConfiguration          string
	KubeletSystemdUnit            string
	CNIVersion                    string
	ServerAddress                 string
	BootstrapKubeconfig           string
	InTreeCCMAvailable            bool
	ClusterDNSIPs                 []net.IP
	KubernetesCACert              string
	HostCACert                    string
	CloudConfig                   string
	ContainerRuntime              string
	CloudProviderName             v1alpha1.CloudProvider
	NetworkConfig                 *providerconfig.NetworkConfig
	ExternalCloudProvider         bool
	InitialTaints                 string
	HTTPProxy                     *string
	NoProxy                       *string
	ContainerRuntimeConfig        string
	ContainerRuntimeAuthConfig    string
	KubeletFeatureGates           map[string]bool
	RHSubscription                map[string]string
	NetworkIPFamily               string
	PauseImage                    string
	KubeReserved                  *map[string]string
	SystemReserved                *map[string]string
	EvictionHard                  *map[string]string
	MaxPods                       *int32
	ImageGCHighThresholdPercent   *int32
	ImageGCLowThresholdPercent    *int32
	ContainerLogMaxSize           *string
	ContainerLogMaxFiles          *string
	ImageMinimumGCAge             *v1.Duration
	ImageMaximumGCAge             *v1.Duration
	Token                         string
	ServerURL                     string
	SecretName                    string
	BootstrapKubeconfigSecretName string
	AmazonLinuxConfig             amazonLinuxConfig
	FlatcarConfig                 flatcarConfig
	RhelConfig                    rhelConfig
	UbuntuConfig                  ubuntuConfig
	RockyLinuxConfig              rockyLinuxConfig
}
