package e2e

func readsWhatAnEarlierPodWrote(c *scene) {
	c.makeClaim(newClaim("data", "64Mi"))
	c.succeed(newPod("writer", writeFile("/data/file", "8M"), withClaim("data")))
	c.removePod("writer")
	c.succeed(newPod("reader", checkFile("/data/file"), withClaim("data")))
}
