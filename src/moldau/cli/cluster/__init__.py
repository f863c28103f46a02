"""Commands about the cluster: cluster, configs, logdirs. They see it only through its admin API."""
