"""Commands about the cluster: cluster, configs, logdirs."""
