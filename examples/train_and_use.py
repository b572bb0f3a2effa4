"""Train five clients with different encoders and use the policy of one of them."""

import fedqhd

run = fedqhd.train(
    env="CartPole-v1",
    setting="heterogeneous",
    dims=[200, 300, 400],
    episodes=100,
    round_episodes=10,
    out="runs/example",
)
policy = run.policy(client=0)

env = policy.make_env()  # with the action_repeat of training
obs, _ = env.reset(seed=0)
total, done = 0.0, False
while not done:
    action, _ = policy.predict(obs)
    obs, reward, terminated, truncated, _ = env.step(action)
    total, done = total + float(reward), terminated or truncated
print(f"final return {run['final_return']:.1f}; this episode {total:.0f}")
